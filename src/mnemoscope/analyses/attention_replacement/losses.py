"""Losses on a batch by skill, and whether one is higher than another by more than noise.

Sequences are the unit. With d_b the change of the loss summed over the positions of a skill in sequence b, n_b their
number and w_b the weight of the sequence, the change is m = sum w d / sum w n and its standard error
sqrt(sum w^2 (d - m n)^2) / sum w n. A change *costs* where it is above the tolerance and above three standard errors,
for any skill. It *holds* where it is at most the tolerance, for every skill: the mean loss alone may hide a skill that
is tested in few sequences. It *surely holds* where three standard errors more would still hold; selection asks for
that, so that what is chosen holds on other prompts too. The error says how much other prompts would change the result.
It says nothing about other seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.forward import answer_scores, normalised, read_at, skill_losses
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Intervention
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills, check_skills
from mnemoscope.interventions.recordings import Recordings, check_numbers
from mnemoscope.interventions.run import run_at

ALL = "all"
"""Name of the skill that is every scored position."""
N_ERRORS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class SkillLoss:
    """A batch, and masks of the positions of each skill that losses are summed over; the first skill is `all`."""

    batch: Batch
    masks: Skills

    @property
    def names(self) -> list[str]:
        """The skills, and the parts of vectors."""
        return [*self.masks, *self.batch.parts]

    @cached_property
    def counts(self) -> Float[Tensor, "batch skill"]:
        """Positions of each skill in each sequence."""
        masks = [*self.masks.values(), *(self.batch.scored for _ in self.batch.parts)]
        return torch.stack([mask.double().sum(1) for mask in masks], 1)

    @cached_property
    def weights(self) -> Float[Tensor, "batch skill"]:
        """The probabilities of the sequences for `all`; within a skill every sequence counts the same."""
        weights = torch.ones(len(self.batch), len(self.names), dtype=torch.double, device=self.batch.scored.device)
        if self.batch.weights is not None:
            weights[:, 0] = self.batch.weights
        return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """Sums over the positions of a skill, sequence by sequence."""

    loss: Float[Tensor, "batch skill"]
    n_correct: Float[Tensor, "batch skill"] | None
    """None where answers are vectors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """The rise of a loss, and its standard error."""

    mean: Float[Tensor, " skill"]
    error: Float[Tensor, " skill"]

    def costly(self, tolerance: float) -> Bool[Tensor, " skill"]:
        """Skills for which the loss rises by more than the tolerance and more than noise."""
        return (self.mean > tolerance) & ~(self.mean <= N_ERRORS * self.error)

    def costs(self, tolerance: float) -> bool:
        """True if the loss rises for any skill."""
        return bool(self.costly(tolerance).any())

    def holds(self, tolerance: float, *, surely: bool = False) -> bool:
        """True if the loss of every skill stays within the tolerance; `surely`: with noise to spare."""
        margin = N_ERRORS * self.error if surely else 0
        return bool((self.mean + margin <= tolerance).all())


def yardstick(batch: Batch, skills: Skills | None = None) -> SkillLoss:
    """All scored positions, and the skills; refused where none is scored, or a skill is nowhere or called `all`."""
    skills = {} if skills is None else skills
    if ALL in skills:
        raise InputError(f"a skill must not be called {ALL!r}, the name of all scored positions; rename it")
    masks = {ALL: batch.scored, **{name: mask.to(batch.scored.device) for name, mask in skills.items()}}
    check_skills(batch, masks)
    return SkillLoss(batch=batch, masks=masks)


def score(outputs: Float[Tensor, "batch pos d_output"], by: SkillLoss) -> Score:
    """Loss and right answers of every sequence, summed over the positions of each skill; refuses NaN."""
    if by.batch.has_vectors:
        check_numbers(outputs)
        return _summed(skill_losses(outputs.double(), by.batch, by.masks), None, by)
    outputs = normalised(outputs)
    right = metrics.correct(outputs, by.batch.targets).double()
    return _summed(skill_losses(outputs, by.batch, by.masks), right, by)


def scored(
    model: HookedModel, by: SkillLoss, interventions: Sequence[Intervention], recordings: Recordings | None = None
) -> Score:
    """The same of a run with interventions, of which nothing but the positions of skills is unembedded."""

    def run(rows: slice, where: Tensor) -> Tensor:
        return run_at(model, by.batch, interventions, where, rows=rows, recordings=recordings)

    def vectors(outputs: Tensor, _: Tensor) -> dict[str, Tensor]:
        check_numbers(outputs)
        return {"outputs": outputs.double()}

    tested = torch.stack([*by.masks.values()]).any(0)
    if by.batch.has_vectors:
        outputs = read_at(model, by.batch, tested, vectors, run=run)["outputs"]
        return _summed(skill_losses(outputs, by.batch, by.masks), None, by)
    found = read_at(model, by.batch, tested, answer_scores, run=run)
    losses = {name: (-found["log_prob"], mask) for name, mask in by.masks.items()}
    return _summed(losses, found["accuracy"], by)


def _summed(losses: Mapping[str, tuple[Tensor, Tensor]], right: Tensor | None, by: SkillLoss) -> Score:
    def sums(values: Float[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        return values.masked_fill(~mask.to(values.device), 0).sum(1)

    loss = torch.stack([sums(values, mask) for values, mask in losses.values()], 1)
    if right is None:
        return Score(loss=loss, n_correct=None)
    return Score(loss=loss, n_correct=torch.stack([sums(right, mask) for mask in by.masks.values()], 1))


def over_skills(values: Mapping[str, Tensor]) -> dict[str, tuple[str, np.ndarray]]:
    """Variables of a result over `skill`."""
    return {name: ("skill", value.numpy()) for name, value in values.items()}


def means(total: Score, by: SkillLoss) -> dict[str, Float[Tensor, " skill"]]:
    """`loss` and, of tokens, `accuracy` of every skill."""
    weights, whole = by.weights, (by.weights * by.counts).sum(0)
    sums = {"loss": total.loss, **({} if total.n_correct is None else {"accuracy": total.n_correct})}
    return {name: ((weights * value).sum(0) / whole).cpu() for name, value in sums.items()}


def rise(after: Score, before: Score, by: SkillLoss) -> Change:
    """The rise of the loss from before to after, on the same sequences."""
    weights, counts = by.weights, by.counts
    difference, whole = after.loss - before.loss, (weights * counts).sum(0)
    mean = (weights * difference).sum(0) / whole
    error = (weights * (difference - mean * counts)).square().sum(0).sqrt() / whole
    return Change(mean=mean.cpu(), error=error.cpu())
