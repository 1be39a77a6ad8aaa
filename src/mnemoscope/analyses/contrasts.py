"""The object of an analysis: a difference of logits, at some positions, each by itself or in means by skill.

The difference is that of the answer's logit and a foil's, or that of several tokens:

    contrast = logit(answer) - logit(foil)        or        logit(answer) - mean over tokens of logit(token)

The softmax does not see a constant that is added to all logits. The logit of one token does, a difference does not;
so only differences can be read. The difference against one foil is the log of the odds of the two, in nats.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import at_target
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Position
from mnemoscope.interventions.replacements import position_mask as named

Foil = Int[Tensor, "batch pos"] | Sequence[int] | Literal["mean"]
"""A token for each position, tokens whose mean logit is the foil, or the mean over the whole vocabulary."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrast:
    """A difference of logits (`name` says it in words) at some positions: of `answer`, 0 elsewhere, minus `foil`.

    The foil is a token for each position, or tokens whose mean logit counts.
    """

    answer: Int[Tensor, "batch pos"]
    foil: Int[Tensor, "batch pos"] | Int[Tensor, " token"]
    positions: Bool[Tensor, "batch pos"]
    name: str

    def select(self, rows: slice, columns: Int[Tensor, " column"]) -> "Contrast":
        """The same for some of the sequences and positions only."""
        foil = self.foil if self.foil.ndim == 1 else self.foil[rows][:, columns]
        answer, positions = self.answer[rows][:, columns], self.positions[rows][:, columns]
        return replace(self, answer=answer, foil=foil, positions=positions)

    def difference(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos"]:
        """The difference itself."""
        return at_target(logits, self.answer) - self._subtracted(logits)

    def size(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos"]:
        """The size of the logits that are subtracted, to which the rounding of the difference is relative."""
        return at_target(logits.abs(), self.answer) + self._subtracted(logits.abs())

    def column_difference(self, weight: Float[Tensor, "d_model d_vocab"]) -> Float[Tensor, "batch pos d_model"]:
        """The same difference of the columns of a matrix, such as W_U, in float64."""
        answers = weight.T[self.answer].double()
        if self.foil.ndim > 1:
            return answers - weight.T[self.foil].double()
        everything = torch.arange(weight.shape[1], device=weight.device)
        some = weight if torch.equal(self.foil, everything) else weight[:, self.foil]
        # a few rows at a time stay in the cache: a copy of the whole matrix would take longer than all else
        return answers - torch.cat([rows.double().mean(1) for rows in some.split(4)])

    def _subtracted(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos"]:
        return logits[..., self.foil].mean(-1) if self.foil.ndim == 1 else at_target(logits, self.foil)


def contrast(
    model: HookedModel,
    batch: Batch,
    *,
    positions: Bool[Tensor, "batch pos"],
    answer: Int[Tensor, "batch pos"] | None = None,
    foil: Foil = "mean",
) -> Contrast:
    """A checked contrast; arguments as for `logit_attribution`."""
    check_fits(model, batch)
    weights: Any = model
    n_tokens, device = weights.W_U.shape[-1], weights.W_U.device
    positions = positions.to(device)
    answer = (batch.targets if answer is None else answer).to(device)
    _same_shape("answer", answer, batch)
    answer = answer.masked_fill(~positions, 0)
    if isinstance(foil, Tensor):
        _same_shape("foil", foil, batch)
    tokens, name = _foil(foil, positions, n_tokens)
    _in_vocabulary("answer", answer, n_tokens)
    _in_vocabulary("foil", tokens, n_tokens)
    alone = tokens.ndim == 2 or len(tokens) == 1
    if alone and not (answer != tokens)[positions].any():
        raise InputError(
            "foil must differ from the answer somewhere, since their difference is 0 otherwise; got the same tokens: "
            "name another foil, or take foil='mean'"
        )
    return Contrast(answer=answer, foil=tokens, positions=positions, name=f"answer - {name}")


def _foil(foil: object, positions: Tensor, n_tokens: int) -> tuple[Tensor, str]:
    """The foil's tokens, and the foil in words."""
    if isinstance(foil, Tensor):
        return foil.to(positions.device).masked_fill(~positions, 0), "foil"
    if foil == "mean":
        return torch.arange(n_tokens, device=positions.device), f"mean of all {n_tokens} logits"
    if isinstance(foil, Sequence) and not isinstance(foil, str) and foil:
        tokens = torch.tensor(list(foil), device=positions.device)
        return tokens, f"mean of the logits of tokens {', '.join(str(token) for token in foil)}"
    raise InputError(
        "foil must be a token for each position, some tokens, or 'mean', because the logit of the answer alone moves "
        f"with a constant that is added to all logits, and predictions do not; got {foil!r}"
    )


def _same_shape(argument: str, value: Tensor, batch: Batch) -> None:
    shape = tuple(batch.inputs.shape)
    if tuple(value.shape) != shape:
        raise InputError(f"{argument} must have the batch's shape (batch, pos) = {shape}; got {tuple(value.shape)}")


def _in_vocabulary(argument: str, tokens: Tensor, n_tokens: int) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= n_tokens:
        raise InputError(
            f"{argument} must be tokens from 0 to {n_tokens - 1}, the model's; got {low if low < 0 else high}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Positions, and how values at them are put together.

    Means are taken over `skills`; without them every position is kept. `weights` of each skill add up to one, and are
    NaN for a skill without any position.
    """

    positions: Bool[Tensor, "batch pos"]
    batch: Batch
    skills: tuple[str, ...] | None = None
    weights: Float[Tensor, "skill batch pos"] | None = None

    @property
    def columns(self) -> Int[Tensor, " column"]:
        """The positions that are looked at in at least one sequence, in order."""
        return self.positions.any(0).nonzero().squeeze(1)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes that results have in front."""
        return ("prompt", "pos") if self.weights is None else ("skill",)

    @property
    def coords(self) -> dict[str, Any]:
        """Their coordinates."""
        if self.skills is not None:
            return {"skill": list(self.skills)}
        columns = self.columns.tolist()
        coords = {"prompt": range(len(self.positions)), "pos": columns, **self.batch.labels(pos=columns)}
        if self.batch.symbol is not None:
            coords["token"] = (self.dims, [[row[pos] for pos in columns] for row in self.batch.symbols])
        return coords

    @property
    def attrs(self) -> dict[str, str]:
        """A description of how the means were taken."""
        return {} if self.skills is None else {"mean": "over the positions of the skill, each counts the same"}

    def gather(
        self, parts: Iterable[tuple[slice, Mapping[str, Shaped[Tensor, "rows column *value"]]]]
    ) -> dict[str, Tensor]:
        """Values at the columns of some of the sequences at a time, as one array each; NaN where nobody looks."""
        kept: dict[str, list[Tensor]] = {}
        for rows, values in parts:
            for name, value in values.items():
                kept.setdefault(name, []).append(self._kept(rows, value))
        if self.weights is None:
            return {name: torch.cat(values) for name, values in kept.items()}
        return {name: torch.stack(values).sum(0) for name, values in kept.items()}

    def _kept(self, rows: slice, value: Tensor) -> Tensor:
        here = self.positions[rows][:, self.columns]
        here = here.view(*here.shape, *[1] * (value.ndim - 2)).to(value.device)
        if self.weights is None:
            return torch.where(here, value, torch.nan).cpu()
        weights = self.weights[:, rows][..., self.columns].to(value)
        return torch.einsum("sbp,bp...->s...", weights, torch.where(here, value, 0.0)).cpu()


def selection(
    batch: Batch,
    *,
    positions: Bool[Tensor, "batch pos"] | Position | None = None,
    skills: Mapping[str, Bool[Tensor, "batch pos"]] | None = None,
) -> Selection:
    """A checked selection; arguments as for `logit_attribution`."""
    masks = {} if skills is None else dict(skills)
    if positions is not None and not isinstance(positions, Tensor):
        positions = (named(positions, batch) & batch.real).expand(batch.scored.shape)
    given = {} if positions is None else {"positions": positions}
    for name, mask in {**given, **{f"skill {name}": mask for name, mask in masks.items()}}.items():
        _same_shape(name, mask, batch)
    if skills is not None and not masks:
        raise InputError("skills must name at least one mask (none: no means are taken); got an empty mapping")
    result = Selection(positions=batch.scored if positions is None else positions, batch=batch)
    if skills is not None:
        stacked = torch.stack(list(masks.values()))
        stacked = stacked if positions is None else stacked & positions
        weights = stacked.double()
        weights = weights / weights.sum((1, 2), keepdim=True)
        result = Selection(positions=stacked.any(0), batch=batch, skills=tuple(masks), weights=weights)
    if not result.positions.any():
        raise InputError("positions (none: the scored ones) and skills must select at least one position; got none")
    return result
