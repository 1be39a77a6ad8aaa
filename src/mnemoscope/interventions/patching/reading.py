"""Forward passes recorded at chosen places, and metrics read from their logits at the scored positions of prompts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import Metric, check_metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Kind, Site

Place = tuple[Kind, int | None]
"""A kind of activation and its layer."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A recorded forward pass.

    Attributes:
        activations: By place, batch axis first.
        logits: At the positions that metrics read.
    """

    activations: Mapping[Place, Tensor]
    logits: Float[Tensor, "batch read d_vocab"]

    def __getitem__(self, place: Place) -> Tensor:
        return self.activations[place]


@dataclass(frozen=True, kw_only=True)
class Patched:
    """Logits under some patches.

    Attributes:
        cells: Numbers of the cells in the grid.
        first: At the positions read from this one on; before it nothing changes.
        logits: Of every cell on every prompt.
    """

    cells: Sequence[int]
    first: int
    logits: Float[Tensor, "cell prompt read d_vocab"]


@torch.no_grad()
def recorded(
    model: HookedModel, tokens: Int[Tensor, "batch pos"], places: Collection[Place], read: Int[Tensor, " read"]
) -> Run:
    """Run the model, hooks that are on it included.

    Args:
        model: Any hooked model.
        tokens: Its input.
        places: What to record.
        read: Positions whose logits are kept.

    Raises:
        InputError: The model has no such place, or its logits hold NaN.
    """
    names = {place: Site(kind=place[0], layer=place[1]).hook for place in places}
    wanted = set(names.values())
    logits, cache = model.run_with_cache(tokens, names_filter=lambda name: name in wanted)
    missing = sorted((name, kind) for (kind, _), name in names.items() if name not in cache)
    if missing:
        name, kind = missing[0]
        raise InputError(f"the model has no {kind} (hook point {name}); choose another kind of activation")
    check_numbers(logits)
    # A view would keep the logits of all positions in memory.
    found = {place: cache[name].expand(len(tokens), *cache[name].shape[1:]) for place, name in names.items()}
    return Run(activations=found, logits=logits.index_select(1, read.to(logits.device)))


def check_numbers(logits: Tensor) -> None:
    """Refuse logits that hold NaN.

    Raises:
        InputError: They do.
    """
    if logits.isnan().any():
        raise InputError("the model's logits hold NaN; check its weights, or take an earlier checkpoint")


_TRIED = 8
"""Positions at which the check of the metrics looks."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What metrics need to know about some prompts, at the positions that are read.

    Attributes:
        metrics: To be read.
        answer: The right token.
        foil: The token that is right on the corrupted prompt.
        scored: Which of the positions count for a prompt.
        clean: Logits of the clean prompts.
    """

    metrics: Sequence[Metric]
    answer: Int[Tensor, "prompt read"]
    foil: Int[Tensor, "prompt read"]
    scored: Bool[Tensor, "prompt read"]
    clean: Float[Tensor, "prompt read d_vocab"]

    @staticmethod
    def of(
        pairs: PromptPairs,
        read: Int[Tensor, " read"],
        metrics: Sequence[Metric],
        clean: Float[Tensor, "prompt read d_vocab"],
    ) -> "Reader":
        """The reader of some pairs, on the device of the logits.

        Raises:
            InputError: The model has no logit for an answer or a foil.
        """
        answer, foil, scored = (
            values[:, read.to(values.device)].to(clean.device) for values in (pairs.answer, pairs.foil, pairs.scored)
        )
        # Where nothing is scored a target may be anything, also no token.
        answer, foil = (torch.where(scored, tokens, 0) for tokens in (answer, foil))
        highest = int(max(answer.max(), foil.max()))
        if highest >= clean.shape[-1]:
            raise InputError(
                f"answers and foils must be tokens that the model predicts, 0 to {clean.shape[-1] - 1}; got {highest}"
            )
        return Reader(metrics=metrics, answer=answer, foil=foil, scored=scored, clean=clean)

    def check(self, generator: torch.Generator) -> None:
        """Refuse metrics that are none, tried at a few of the positions.

        Raises:
            InputError: As `check_metric`.
        """
        prompt, position = self.scored.nonzero()[:_TRIED].unbind(1)
        for metric in self.metrics:
            of_some = (tokens[prompt, position] for tokens in (self.clean, self.answer, self.foil))
            check_metric(metric, *of_some, generator=generator)

    def values(
        self, logits: Float[Tensor, "cell prompt some d_vocab"], first: int = 0
    ) -> Float[Tensor, "metric cell prompt some"]:
        """Every metric at the positions from number `first` on."""
        rows = logits.shape[:-1]
        answer, foil = (tokens[:, first:].expand(rows) for tokens in (self.answer, self.foil))
        clean = self.clean[:, first:].expand(logits.shape)
        return torch.stack([metric(logits, answer, foil, clean).double() for metric in self.metrics])

    def mean(self, values: Float[Tensor, "metric *cell prompt read"]) -> Float[Tensor, "metric *cell prompt"]:
        """The mean over the scored positions of each prompt, on the CPU.

        Raises:
            InputError: A metric is NaN.
        """
        total = torch.where(self.scored, values, 0).sum(-1)
        result = (total / self.scored.sum(-1)).cpu()
        for metric, of_metric in zip(self.metrics, result, strict=True):
            if of_metric.isnan().any():
                raise InputError(f"metric {metric.name} is NaN on these logits; change it or choose other positions")
        return result

    def patched(
        self,
        logits: Float[Tensor, "cell prompt some d_vocab"],
        first: int,
        unpatched: Float[Tensor, "metric prompt read"],
    ) -> Float[Tensor, "metric cell prompt"]:
        """Values of prompts whose logits changed at the positions from number `first` on.

        Raises:
            InputError: The logits or a metric hold NaN.
        """
        check_numbers(logits)
        values = self.values(logits, first)
        if first:
            earlier = unpatched[:, None, :, :first].expand(-1, len(logits), -1, -1)
            values = torch.cat((earlier, values), -1)
        return self.mean(values)
