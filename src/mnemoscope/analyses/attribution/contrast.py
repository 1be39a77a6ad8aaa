"""The difference of logits that an analysis looks at: the answer's against that of a foil, or of several tokens.

    contrast = logit(answer) - logit(foil)        or        logit(answer) - mean over tokens of logit(token)

The softmax does not see a constant that is added to all logits. The logit of one token does, a difference does not;
so only differences can be asked for. The difference against one foil is the log of the odds of the two, in nats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import at_target
from mnemoscope.core.protocols import HookedModel

Foil = Int[Tensor, "batch pos"] | Sequence[int] | Literal["mean"]
"""A token for each position, tokens whose mean logit is the foil, or the mean over the whole vocabulary."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrast:
    """Which logits are subtracted, at which positions.

    Attributes:
        answer: The token whose logit counts positively; 0 where `positions` is False.
        foil: A token for each position, or the tokens whose mean logit is subtracted.
        positions: Where the difference is looked at.
        name: The difference in words.
    """

    answer: Int[Tensor, "batch pos"]
    foil: Int[Tensor, "batch pos"] | Int[Tensor, " token"]
    positions: Bool[Tensor, "batch pos"]
    name: str

    def at(self, rows: slice, columns: Int[Tensor, " column"]) -> "Contrast":
        """The same for some of the sequences and positions only."""
        return Contrast(
            answer=self.answer[rows][:, columns],
            foil=self.foil if self.foil.ndim == 1 else self.foil[rows][:, columns],
            positions=self.positions[rows][:, columns],
            name=self.name,
        )

    def of(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos"]:
        """The difference itself."""
        return at_target(logits, self.answer) - self._subtracted(logits)

    def size(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos"]:
        """How large the logits are that are subtracted: what the rounding of the difference is relative to."""
        return at_target(logits.abs(), self.answer) + self._subtracted(logits.abs())

    def of_columns(self, weight: Float[Tensor, "d_model d_vocab"]) -> Float[Tensor, "batch pos d_model"]:
        """The same difference of the columns of a matrix, such as W_U."""
        rows = weight.T
        against = rows[self.foil].mean(0) if self.foil.ndim == 1 else rows[self.foil]
        return rows[self.answer] - against

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
    """A checked contrast.

    Args:
        model: Its vocabulary and context bound what can be asked for.
        batch: The sequences.
        positions: Where to look.
        answer: The token at every position; none: the batch's targets.
        foil: A token for each position; or tokens whose mean logit is subtracted, such as a task's `answers`; or
            `mean`, the mean over the whole vocabulary, tokens that never occur included.

    Raises:
        InputError: A shape differs from the batch's, a token is outside the vocabulary, the
            foil is the answer everywhere, or the sequences do not fit the model.
    """
    check_fits(model, batch)
    unembedding = _unembedding(model)
    n_tokens, device = unembedding.shape[-1], unembedding.device
    positions = positions.to(device)
    answer = (batch.targets if answer is None else answer).to(device)
    _same_shape("answer", answer, batch.inputs.shape)
    answer = answer.masked_fill(~positions, 0)
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
        _same_shape("foil", foil, positions.shape)
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


def _same_shape(argument: str, value: Tensor, shape: Sequence[int]) -> None:
    if tuple(value.shape) != tuple(shape):
        raise InputError(
            f"{argument} must have the batch's shape (batch, pos) = {tuple(shape)}; got {tuple(value.shape)}"
        )


def _in_vocabulary(argument: str, tokens: Tensor, n_tokens: int) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= n_tokens:
        raise InputError(
            f"{argument} must be tokens from 0 to {n_tokens - 1}, the model's; got {low if low < 0 else high}"
        )


def _unembedding(model: Any) -> Tensor:
    return model.W_U
