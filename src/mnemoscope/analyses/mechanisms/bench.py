"""A model on one batch, ready to be measured again and again with other attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mnemoscope.analyses.mechanisms.losses import Change, Score, SkillLoss, rise, score
from mnemoscope.analyses.mechanisms.weights import layer_attention
from mnemoscope.core.batch import Batch
from mnemoscope.core.intervention import Intervention, Mean, SetPattern
from mnemoscope.core.mechanism import Mechanism
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_with

TOLERANCE = 0.05
"""Nats by which a loss may rise and still count as held."""

Head = tuple[int, int]
"""Layer and number in the layer."""
Assignment = Mapping[Head, Mechanism]


def heads(model: HookedModel) -> list[Head]:
    """Every head of a model, layer by layer."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A model on one batch, ready to be measured under interventions.

    Attributes:
        model: The model.
        by: The batch and the skills.
        reference: Where means come from.
        recordings: The activations of `reference`, kept between measurements.
        clean: Without any intervention.
    """

    model: HookedModel
    by: SkillLoss
    reference: Named[Batch]
    recordings: Recordings
    clean: Score

    def with_patterns(self, assigned: Assignment) -> Score:
        """With the attention of some heads replaced."""
        return self._score(
            [
                SetPattern(site=Site(kind="pattern", layer=layer, head=head), mechanism=mechanism)
                for (layer, head), mechanism in assigned.items()
            ]
        )

    def ablated(self, head: Head) -> Score:
        """With one head mean-ablated."""
        return self._score([Mean(site=Site(kind="z", layer=head[0], head=head[1]), source=self.reference)])

    def rise(self, after: Score, before: Score | None = None) -> Change:
        """By how much the loss is higher than before, or than in the clean run."""
        return rise(after, self.clean if before is None else before, self.by)

    def _score(self, interventions: Sequence[Intervention]) -> Score:
        logits = run_with(self.model, self.by.batch, interventions, recordings=self.recordings)
        return score(logits, self.by)


def bench(model: HookedModel, by: SkillLoss, reference: Batch) -> Bench:
    """A model on a batch, with its clean losses.

    Raises:
        InputError: The model is too small for the batch, or attention or logits hold NaN.
    """
    for layer in range(model.cfg.n_layers):
        layer_attention(model, layer, by.batch)  # refuses NaN, which the logits need not show
    return Bench(
        model=model,
        by=by,
        reference=Named(name="reference", value=reference),
        recordings=Recordings(model),
        clean=score(run_with(model, by.batch, []), by),
    )


def described(at: Bench, tolerance: float) -> dict[str, str | int | float]:
    """Attributes of a result."""
    return {
        "loss_unit": "nats",
        "tolerance": tolerance,
        "n": len(at.by.batch),
        "reference": str(at.reference),
        "n_reference": len(at.reference.value),
        "weights": "unprocessed",
    }
