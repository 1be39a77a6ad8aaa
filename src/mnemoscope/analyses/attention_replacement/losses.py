"""Losses on a batch by skill under replaced attention, and whether one is higher than another by more than noise.

Sequences are the unit. Let d_b be the change of the loss summed over the positions of a skill in sequence b, n_b their
number, and w_b the weight of the sequence. The change is m = sum w d / sum w n and its standard error
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
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.forward import answer_scores, read_logits_at, skill_losses
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Intervention, Mean, SetPattern
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, check_skills
from mnemoscope.interventions.recordings import Recordings, check_no_nan
from mnemoscope.interventions.run import run_at

ALL = "all"
"""Name of the skill that is every scored position."""
N_ERRORS = 3
TOLERANCE = 0.05
"""The largest rise of a loss (nats, or squared error) that still counts as held."""

HeadIndex = tuple[int, int]
"""Layer and number in the layer."""
Assignment = Mapping[HeadIndex, Mechanism]


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
    def tested(self) -> Bool[Tensor, "batch pos"]:
        """The positions that test some skill."""
        return torch.stack([*self.masks.values()]).any(0)

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
    """Sums over the positions of a skill, sequence by sequence; `n_correct` is None where answers are vectors."""

    loss: Float[Tensor, "batch skill"]
    n_correct: Float[Tensor, "batch skill"] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LossRise:
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


def skill_loss(batch: Batch, skills: Skills | None = None) -> SkillLoss:
    """All scored positions, and the skills; refused where none is scored, or a skill is nowhere or called `all`."""
    skills = {} if skills is None else skills
    if ALL in skills:
        raise InputError(f"a skill must not be called {ALL!r}, the name of all scored positions; rename it")
    masks = {ALL: batch.scored, **{name: mask.to(batch.scored.device) for name, mask in skills.items()}}
    check_skills(batch, masks)
    return SkillLoss(batch=batch, masks=masks)


def score(outputs: Float[Tensor, "batch pos d_output"], by: SkillLoss) -> Score:
    """Loss and right answers of every sequence, summed over the positions of each skill; refuses NaN."""
    return _sum_by_skill(_answer_scores(outputs, by.batch.targets), by)


def _answer_scores(outputs: Float[Tensor, "*rows d_output"], targets: Tensor) -> dict[str, Tensor]:
    """Vectors as they are; of tokens the scores of the answers."""
    if not targets.is_floating_point():
        return answer_scores(outputs, targets.to(outputs.device))
    check_no_nan(outputs)
    return {"outputs": outputs.double()}


def _sum_by_skill(found: Mapping[str, Tensor], by: SkillLoss) -> Score:
    def sums(values: Float[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        return values.masked_fill(~mask.to(values.device), 0).sum(1)

    if by.batch.has_vectors:
        losses = skill_losses(found["outputs"], by.batch, by.masks)
        return Score(loss=torch.stack([sums(values, mask) for values, mask in losses.values()], 1), n_correct=None)
    sum_of = {name: torch.stack([sums(found[name], mask) for mask in by.masks.values()], 1) for name in found}
    return Score(loss=-sum_of["log_prob"], n_correct=sum_of["accuracy"])


def mean_scores(total: Score, by: SkillLoss) -> dict[str, Float[Tensor, " skill"]]:
    """`loss` and, of tokens, `accuracy` of every skill."""
    weights, whole = by.weights, (by.weights * by.counts).sum(0)
    sums = {"loss": total.loss, **({} if total.n_correct is None else {"accuracy": total.n_correct})}
    return {name: ((weights * value).sum(0) / whole).cpu() for name, value in sums.items()}


def loss_rise(after: Score, before: Score, by: SkillLoss) -> LossRise:
    """The rise of the loss from before to after, on the same sequences."""
    weights, counts = by.weights, by.counts
    difference, whole = after.loss - before.loss, (weights * counts).sum(0)
    mean = (weights * difference).sum(0) / whole
    error = (weights * (difference - mean * counts)).square().sum(0).sqrt() / whole
    return LossRise(mean=mean.cpu(), error=error.cpu())


def skill_variables(values: Mapping[str, Tensor]) -> dict[str, tuple[str, np.ndarray]]:
    """Variables of a result over `skill`."""
    return {name: ("skill", to_numpy(value)) for name, value in values.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class LossMeter:
    """A model on one batch, ready to be measured under interventions; `clean` is the score without any.

    Means come from `reference`, whose activations `recordings` keep between measurements. A loss that rises by
    `tolerance` nats still counts as held. The seed is that of the permuted targets.
    """

    model: HookedModel
    by: SkillLoss
    reference: Named[Batch]
    recordings: Recordings
    clean: Score
    tolerance: float
    seed: int

    @property
    def heads(self) -> list[HeadIndex]:
        """Every head of the model, layer by layer."""
        cfg = self.model.cfg
        return [(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]

    @property
    def attrs(self) -> dict[str, str | int | float]:
        """Attributes of a result."""
        return {
            "loss_unit": self.by.batch.loss_unit,
            "tolerance": self.tolerance,
            "n": len(self.by.batch),
            "reference": str(self.reference),
            "n_reference": len(self.reference.value),
            "weights": "unprocessed",
        }

    def with_patterns(self, assigned: Assignment) -> Score:
        """The score with the attention of some heads replaced."""
        sites = {head: Site(kind="pattern", layer=head[0], head=head[1]) for head in assigned}
        changes = [SetPattern(site=sites[head], mechanism=mechanism) for head, mechanism in assigned.items()]
        return _score_with(self.model, self.by, changes, self.recordings)

    def score_ablated(self, head: HeadIndex) -> Score:
        """The score with one head mean-ablated."""
        change = Mean(site=Site(kind="z", layer=head[0], head=head[1]), source=self.reference)
        return _score_with(self.model, self.by, [change], self.recordings)

    def loss_rise(self, after: Score, before: Score | None = None) -> LossRise:
        """The rise of the loss from before, or from the clean run."""
        return loss_rise(after, self.clean if before is None else before, self.by)

    def loss_variables(self, after: Score, before: Score | None = None) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `loss`, `accuracy`, `rise` and `rise_error`."""
        change = self.loss_rise(after, before)
        return skill_variables({**mean_scores(after, self.by), "rise": change.mean, "rise_error": change.error})

    def clean_variables(self) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `clean_loss` and `clean_accuracy`."""
        return skill_variables({f"clean_{name}": value for name, value in mean_scores(self.clean, self.by).items()})

    def by_layer(self, rows: Sequence[xr.Dataset]) -> xr.Dataset:
        """Results of all `heads` over (layer, head)."""
        cfg = self.model.cfg
        starts = range(0, len(rows), cfg.n_heads)
        layers = [xr.concat(rows[start : start + cfg.n_heads], "head", join="exact") for start in starts]
        result = xr.concat(layers, "layer", join="exact")
        return result.assign_coords(layer=list(range(cfg.n_layers)), head=list(range(cfg.n_heads)))


def loss_meter(
    model: HookedModel,
    batch: Batch,
    skills: Skills | None,
    *,
    tolerance: float = TOLERANCE,
    reference: Batch | None = None,
    seed: int = 0,
) -> LossMeter:
    """A model on a batch, with its clean losses; means come from `reference`, or from the batch."""
    by = skill_loss(batch, skills)
    for layer in range(model.cfg.n_layers):
        layer_attention(model, layer, batch)  # refuses NaN, which the logits need not show
    return LossMeter(
        model=model,
        by=by,
        reference=Named(name="reference", value=batch if reference is None else reference),
        recordings=Recordings(model),
        clean=_score_with(model, by, [], None),
        tolerance=tolerance,
        seed=seed,
    )


def _score_with(
    model: HookedModel, by: SkillLoss, interventions: Sequence[Intervention], recordings: Recordings | None
) -> Score:
    """The score of a run with interventions; nothing but the positions of skills is unembedded."""

    def run(rows: slice, where: Tensor) -> Tensor:
        return run_at(model, by.batch, interventions, where, rows=rows, recordings=recordings)

    return _sum_by_skill(read_logits_at(model, by.batch, by.tested, _answer_scores, run=run), by)
