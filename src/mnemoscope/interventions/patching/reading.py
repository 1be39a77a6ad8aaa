"""Metrics read from logits at the scored positions of some prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import Metric, check_metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.interventions.patching.runs import check_numbers

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
