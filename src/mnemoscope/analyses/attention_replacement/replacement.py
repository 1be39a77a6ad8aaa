"""What a head's attention is replaced with, and what that does to the loss.

The learned attention of one head is set to the pattern of a mechanism. Loss (nats) and accuracy, for all scored
positions and for each skill (for vectors the squared error, also of each part of the answers), are compared with the
clean run, with the head mean-ablated (z replaced by its mean over a reference set, position by position), and with the
mechanism aimed at other targets (`derived`).

    recovered = (loss ablated - loss with the mechanism) / (loss ablated - loss clean)

is 1 if the mechanism does all that the head does for the skill and 0 if it is no better than the ablation. It is NaN
where the ablation does not cost anything: there is nothing to recover.

Whether a change is more than noise: sequences are the unit. With d_b the change of the loss summed over the positions
of a skill in sequence b, n_b their number and w_b the weight of the sequence, the change is m = sum w d / sum w n and
its standard error sqrt(sum w^2 (d - m n)^2) / sum w n. A change *costs* where it is above the tolerance and above three
standard errors, for any skill. It *holds* where it is at most the tolerance, for every skill: the mean loss alone may
hide a skill that is tested in few sequences. It *surely holds* where three standard errors more would still hold;
selection asks for that, so that what is chosen holds on other prompts too. The error says how much other prompts would
change the result. It says nothing about other seeds.

*Shows* whether attending as the mechanism says is enough, given the rest of the model as it is.

*Does not show* what the head reads from where it attends, nor that the model finds the keys in that way; and a head
that another one can stand in for looks unneeded.
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
from mnemoscope.analyses.attention_replacement.derived import has_control, permuted_targets
from mnemoscope.analyses.forward import answer_scores, normalised, read_at, skill_losses
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Intervention, Mean, SetPattern
from mnemoscope.core.mechanism import Mechanism, check_names, silent
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, check_skills
from mnemoscope.interventions.recordings import Recordings, check_numbers
from mnemoscope.interventions.run import run_at

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
    """By how much a loss rises, and the standard error of that."""

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


def score(outputs: Float[Tensor, "batch pos d_output"], by: SkillLoss) -> Score:
    """Loss and right answers of every sequence, summed over the positions of each skill.

    Raises:
        InputError: The outputs hold NaN.
    """
    if by.batch.has_vectors:
        check_numbers(outputs)
        return _summed(skill_losses(outputs.double(), by.batch, by.masks), None, by)
    outputs = normalised(outputs)
    right = metrics.correct(outputs, by.batch.targets).double()
    return _summed(skill_losses(outputs, by.batch, by.masks), right, by)


def _scored(model: HookedModel, by: SkillLoss, interventions: Sequence[Intervention], recordings: Recordings) -> Score:
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
    """By how much the loss is higher after than before, on the same sequences."""
    weights, counts = by.weights, by.counts
    difference, whole = after.loss - before.loss, (weights * counts).sum(0)
    mean = (weights * difference).sum(0) / whole
    error = (weights * (difference - mean * counts)).square().sum(0).sqrt() / whole
    return Change(mean=mean.cpu(), error=error.cpu())


TOLERANCE = 0.05
"""By how much a loss (nats, or squared error) may rise and still count as held."""

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
            "loss_unit": self.by.batch.loss_unit,
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
        return _scored(self.model, self.by, interventions, self.recordings)


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
        clean=_scored(model, by, [], Recordings(model)),
        tolerance=tolerance,
        seed=seed,
    )


def replace_heads(
    model: HookedModel,
    batch: Batch,
    assigned: Assignment,
    *,
    skills: Skills | None = None,
    tolerance: float = TOLERANCE,
) -> xr.Dataset:
    """Loss and accuracy with the attention of one or more heads replaced at the same time.

    Args:
        model: Any hooked model.
        batch: The sequences.
        assigned: Head (layer, number) to its mechanism; the others keep their attention.
        skills: For each skill the positions whose answer it alone gives; `all`, every scored position, is added.
        tolerance: Nats by which every loss may rise.

    Returns:
        Over skill: `loss` (nats), `accuracy`, `clean_loss`, `clean_accuracy`, `rise` and its standard error
        `rise_error`; `holds`, which is without merit where attribute `n_replaced` is 0.

    Raises:
        InputError: A head does not exist, a pattern could not be attention, or a skill is tested nowhere.
    """
    return joint(bench(model, batch, skills, tolerance=tolerance), assigned)


def joint(at: Bench, assigned: Assignment) -> xr.Dataset:
    """As `replace_heads`."""
    after = at.with_patterns(assigned)
    found = {**at.measured(after), **at.measured_clean(), "holds": ((), at.rise(after).holds(at.tolerance))}
    replaced = "; ".join(f"L{layer}H{head}: {m.name}" for (layer, head), m in assigned.items())
    attrs = {**at.attrs, "replaced": replaced, "n_replaced": len(assigned)}
    return xr.Dataset(found, coords={"skill": at.by.names}, attrs=attrs)


def replace_each(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None = None,
    reference: Batch | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> xr.Dataset:
    """Every mechanism in the place of every head's attention, one head at a time.

    Arguments as for `replace_heads`. Of `mechanisms` each is tried; where one says nothing the learned row stays. Means
    are taken over `reference` (none: the batch), and permuted targets are drawn from `seed`.

    Returns:
        Over (layer, head, mechanism, skill): `loss` (nats), `accuracy`, `rise` over the clean loss, `rise_error` (its
        standard error), `control_loss` with permuted targets (NaN where there are no others) and `recovered`; over
        (layer, head, mechanism): `holds` and `beats_control`; over (layer, head, skill): `ablated_loss` and `needed`;
        over skill `clean_loss` and `clean_accuracy`; over mechanism `n_parameters` and `covered`, the share of all
        queries about which it says something: one that says little holds the loss without any merit.

    Raises:
        InputError: There is no mechanism, two share a name, a pattern could not be attention, or a skill is tested
            nowhere.
    """
    check_names(mechanisms)
    at = bench(model, batch, skills, tolerance=tolerance, reference=reference, seed=seed)
    rows = []
    for head in heads(model):
        ablated = at.ablated(head)
        cells = [trial(at, head, mechanism, ablated) for mechanism in mechanisms]
        rows.append(xr.merge([xr.concat(cells, "mechanism", data_vars="all"), removal(at, ablated)]))
    table = by_layer(rows, model).assign_coords(
        mechanism=[m.name for m in mechanisms], n_parameters=("mechanism", [m.n_parameters for m in mechanisms])
    )
    covered = [float((~silent(m.pattern(batch))).double().mean()) for m in mechanisms]
    return table.assign({**at.measured_clean(), "covered": ("mechanism", covered)}).assign_attrs(at.attrs)


def trial(at: Bench, head: Head, mechanism: Mechanism, ablated: Score) -> xr.Dataset:
    """One mechanism in one head: see `replace_each`."""
    after = at.with_patterns({head: mechanism})
    cost, left = at.rise(ablated), at.rise(ablated, after)
    recovered = torch.where(cost.costly(at.tolerance), left.mean / cost.mean, torch.nan)
    other = control(at, head, mechanism)
    other_loss = torch.full_like(recovered, torch.nan) if other is None else means(other, at.by)["loss"]
    judged = {"holds": ((), at.rise(after).holds(at.tolerance)), "beats_control": ((), beaten(at, other, after))}
    compared = over_skills({"control_loss": other_loss, "recovered": recovered})
    return xr.Dataset({**at.measured(after), **compared, **judged}, coords={"skill": at.by.names})


def control(at: Bench, head: Head, mechanism: Mechanism) -> Score | None:
    """With the mechanism aimed at other targets; none if there are no others."""
    if not has_control(mechanism, at.by.batch):
        return None
    return at.with_patterns({head: permuted_targets(mechanism, seed=at.seed)})


def beaten(at: Bench, other: Score | None, after: Score) -> bool:
    """Whether the control costs something beside the mechanism, or there is none."""
    return other is None or at.rise(other, after).costs(at.tolerance)


def removal(at: Bench, ablated: Score) -> xr.Dataset:
    """What the mean ablation of one head does: see `replace_each`."""
    found = {"ablated_loss": means(ablated, at.by)["loss"], "needed": at.rise(ablated).costly(at.tolerance)}
    return xr.Dataset(over_skills(found), coords={"skill": at.by.names})


def by_layer(rows: Sequence[xr.Dataset], model: HookedModel) -> xr.Dataset:
    """Results of every head, in the order of `heads`, over (layer, head)."""
    n_heads = model.cfg.n_heads
    layers = [xr.concat(rows[start : start + n_heads], "head", join="exact") for start in range(0, len(rows), n_heads)]
    result = xr.concat(layers, "layer", join="exact")
    return result.assign_coords(layer=list(range(model.cfg.n_layers)), head=list(range(n_heads)))
