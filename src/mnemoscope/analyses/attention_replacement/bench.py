"""A model on one batch, measured with other attention: loss by skill, and whether a change of it is more than noise.

Sequences are the unit. With d_b the change of the loss summed over the positions of a skill in sequence b, n_b their
number and w_b the weight of the sequence, the change is m = sum w d / sum w n and its standard error
sqrt(sum w^2 (d - m n)^2) / sum w n.

A change *costs* where it is above the tolerance and above three standard errors, for any skill. It *holds* where it
is at most the tolerance, for every skill: the mean loss alone may hide a skill that is tested in few sequences. It
*surely holds* where three standard errors more would still hold; selection asks for that, so that what is chosen
holds on other prompts too.

The error says how much other prompts would change the result. It says nothing about other seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.forward import normalised
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Intervention, Mean, SetPattern
from mnemoscope.core.mechanism import Mechanism
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, check_skills
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_with

ALL = "all"
"""Name of the skill that is every scored position."""
N_ERRORS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class SkillLoss:
    """What losses on one batch are summed over.

    Attributes:
        batch: The sequences.
        masks: Which positions belong to which skill, the first of which is `all`.
    """

    batch: Batch
    masks: Skills

    @property
    def names(self) -> list[str]:
        """The skills."""
        return list(self.masks)

    @cached_property
    def counts(self) -> Float[Tensor, "batch skill"]:
        """Positions of each skill in each sequence."""
        return torch.stack([mask.double().sum(1) for mask in self.masks.values()], 1)

    @cached_property
    def weights(self) -> Float[Tensor, "batch skill"]:
        """The probabilities of the sequences for `all`; within a skill every sequence counts the same."""
        weights = torch.ones(len(self.batch), len(self.masks), dtype=torch.double, device=self.batch.scored.device)
        if self.batch.weights is not None:
            weights[:, 0] = self.batch.weights
        return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """Sums over the positions of a skill, sequence by sequence."""

    loss: Float[Tensor, "batch skill"]
    n_correct: Float[Tensor, "batch skill"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """By how much a loss rises (nats), and the standard error of that."""

    mean: Float[Tensor, " skill"]
    error: Float[Tensor, " skill"]

    def costly(self, tolerance: float) -> Bool[Tensor, " skill"]:
        """Skills for which the loss rises by more than the tolerance and more than noise."""
        return (self.mean > tolerance) & ~(self.mean <= N_ERRORS * self.error)

    def costs(self, tolerance: float) -> bool:
        """Whether the loss rises for any skill."""
        return bool(self.costly(tolerance).any())

    def holds(self, tolerance: float, *, surely: bool = False) -> bool:
        """Whether the loss of every skill stays within the tolerance; `surely`: with noise to spare."""
        margin = N_ERRORS * self.error if surely else 0
        return bool((self.mean + margin <= tolerance).all())


def yardstick(batch: Batch, skills: Skills | None = None) -> SkillLoss:
    """All scored positions, and the skills.

    Raises:
        InputError: No position is scored, a skill is tested nowhere, or is called `all`.
    """
    skills = {} if skills is None else skills
    if ALL in skills:
        raise InputError(f"a skill must not be called {ALL!r}, the name of all scored positions; rename it")
    masks = {ALL: batch.scored, **{name: mask.to(batch.scored.device) for name, mask in skills.items()}}
    check_skills(batch, masks)
    return SkillLoss(batch=batch, masks=masks)


def score(logits: Float[Tensor, "batch pos d_vocab"], by: SkillLoss) -> Score:
    """Loss and right answers of every sequence, summed over the positions of each skill.

    Raises:
        InputError: The logits hold NaN.
    """
    log_probs = normalised(logits)
    targets = by.batch.targets

    def sums(values: Float[Tensor, "batch pos"]) -> Float[Tensor, "batch skill"]:
        return torch.stack([values.masked_fill(~mask.to(values.device), 0).sum(1) for mask in by.masks.values()], 1)

    losses, right = metrics.cross_entropy(log_probs, targets), metrics.correct(log_probs, targets)
    return Score(loss=sums(losses), n_correct=sums(right.double()))


def over_skills(values: Mapping[str, Tensor]) -> dict[str, tuple[str, np.ndarray]]:
    """Variables of a result over `skill`."""
    return {name: ("skill", value.numpy()) for name, value in values.items()}


def means(total: Score, by: SkillLoss) -> dict[str, Float[Tensor, " skill"]]:
    """`loss` (nats) and `accuracy` of every skill."""
    weights, whole = by.weights, (by.weights * by.counts).sum(0)
    sums = {"loss": total.loss, "accuracy": total.n_correct}
    return {name: ((weights * value).sum(0) / whole).cpu() for name, value in sums.items()}


def rise(after: Score, before: Score, by: SkillLoss) -> Change:
    """By how much the loss is higher after than before, on the same sequences."""
    weights, counts = by.weights, by.counts
    difference, whole = after.loss - before.loss, (weights * counts).sum(0)
    mean = (weights * difference).sum(0) / whole
    error = (weights * (difference - mean * counts)).square().sum(0).sqrt() / whole
    return Change(mean=mean.cpu(), error=error.cpu())


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
        tolerance: Nats by which a loss may rise and still count as held.
        seed: Of the permuted targets.
    """

    model: HookedModel
    by: SkillLoss
    reference: Named[Batch]
    recordings: Recordings
    clean: Score
    tolerance: float
    seed: int

    @property
    def attrs(self) -> dict[str, str | int | float]:
        """Attributes of a result."""
        return {
            "loss_unit": "nats",
            "tolerance": self.tolerance,
            "n": len(self.by.batch),
            "reference": str(self.reference),
            "n_reference": len(self.reference.value),
            "weights": "unprocessed",
        }

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

    def measured(self, after: Score, before: Score | None = None) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `loss`, `accuracy`, `rise` and `rise_error`."""
        change = self.rise(after, before)
        return over_skills({**means(after, self.by), "rise": change.mean, "rise_error": change.error})

    def measured_clean(self) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `clean_loss` and `clean_accuracy`."""
        return over_skills({f"clean_{name}": value for name, value in means(self.clean, self.by).items()})

    def _score(self, interventions: Sequence[Intervention]) -> Score:
        logits = run_with(self.model, self.by.batch, interventions, recordings=self.recordings)
        return score(logits, self.by)


def bench(
    model: HookedModel,
    batch: Batch,
    skills: Skills | None,
    *,
    tolerance: float,
    reference: Batch | None = None,
    seed: int = 0,
) -> Bench:
    """A model on a batch, with its clean losses; means come from `reference`, or from the batch.

    Raises:
        InputError: As for `yardstick`, the model is too small for the batch, or attention or logits hold NaN.
    """
    by = yardstick(batch, skills)
    for layer in range(model.cfg.n_layers):
        layer_attention(model, layer, batch)  # refuses NaN, which the logits need not show
    return Bench(
        model=model,
        by=by,
        reference=Named(name="reference", value=batch if reference is None else reference),
        recordings=Recordings(model),
        clean=score(run_with(model, batch, []), by),
        tolerance=tolerance,
        seed=seed,
    )
