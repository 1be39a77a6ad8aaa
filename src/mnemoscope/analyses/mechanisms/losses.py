"""Loss and accuracy by skill, and whether a change of the loss is more than noise.

Sequences are the unit. With d_b the change of the loss summed over the positions of a skill in sequence b, n_b their
number and w_b the weight of the sequence, the change is m = sum w d / sum w n and its standard error
sqrt(sum w^2 (d - m n)^2) / sum w n.

A change *costs* where it is above the tolerance and above three standard errors, for any skill. It *holds* where it
is at most the tolerance, for every skill: the mean loss alone may hide a skill that is tested in few sequences. It
*surely holds* where three standard errors more would still hold; selection asks for that, so that what is chosen
holds on other prompts too.

The error says how much other prompts would change the result. It says nothing about other seeds.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.forward import normalised
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.skills import Skills, check_skills

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


def halves(batch: Batch, skills: Skills | None = None) -> tuple[SkillLoss, SkillLoss]:
    """Every other sequence for choosing, the rest for testing what was chosen.

    Raises:
        InputError: As `yardstick`, for either half.
    """
    parts = [slice(0, None, 2), slice(1, None, 2)]
    one, other = (
        yardstick(batch.select(part), {name: mask[part] for name, mask in (skills or {}).items()}) for part in parts
    )
    return one, other


def score(logits: Float[Tensor, "batch pos d_vocab"], by: SkillLoss) -> Score:
    """Loss and right answers of every sequence, summed over the positions of each skill.

    Raises:
        InputError: The logits hold NaN.
    """
    log_probs = normalised(logits)
    targets = by.batch.targets
    losses = metrics.cross_entropy(log_probs, targets)
    right = metrics.correct(log_probs, targets).double()
    return Score(loss=_sums(losses, by), n_correct=_sums(right, by))


def means(total: Score, by: SkillLoss) -> dict[str, Float[Tensor, " skill"]]:
    """`loss` (nats) and `accuracy` of every skill."""
    weights, counts = _weights(by), _counts(by)
    whole = (weights * counts).sum(0)
    sums = {"loss": total.loss, "accuracy": total.n_correct}
    return {name: ((weights * value).sum(0) / whole).cpu() for name, value in sums.items()}


def rise(after: Score, before: Score, by: SkillLoss) -> Change:
    """By how much the loss is higher after than before, on the same sequences."""
    weights, counts = _weights(by), _counts(by)
    difference, whole = after.loss - before.loss, (weights * counts).sum(0)
    mean = (weights * difference).sum(0) / whole
    error = (weights * (difference - mean * counts)).square().sum(0).sqrt() / whole
    return Change(mean=mean.cpu(), error=error.cpu())


def _sums(values: Float[Tensor, "batch pos"], by: SkillLoss) -> Float[Tensor, "batch skill"]:
    return torch.stack([values.masked_fill(~mask.to(values.device), 0).sum(1) for mask in by.masks.values()], 1)


def _counts(by: SkillLoss) -> Float[Tensor, "batch skill"]:
    return torch.stack([mask.double().sum(1) for mask in by.masks.values()], 1)


def _weights(by: SkillLoss) -> Float[Tensor, "batch skill"]:
    """The probabilities of the sequences for `all`; within a skill every sequence counts the same."""
    weights = torch.ones(len(by.batch), len(by.masks), dtype=torch.double, device=by.batch.scored.device)
    if by.batch.weights is not None:
        weights[:, 0] = by.batch.weights
    return weights
