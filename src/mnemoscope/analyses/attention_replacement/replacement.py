"""The replacement of a head's attention, and its effect on the loss.

The learned attention of one head is set to the pattern of a mechanism. Loss (nats) and accuracy, for all scored
positions and for each skill (for vectors the squared error, also of each part of the answers), are compared with the
clean run, with the head mean-ablated (z replaced by its mean over a reference set, position by position), and with the
mechanism aimed at other targets (`derived`). `losses` says when a change is more than noise.

    recovered = (loss ablated - loss with the mechanism) / (loss ablated - loss clean)

is 1 if the mechanism does all that the head does for the skill and 0 if it is no better than the ablation. It is NaN
where the ablation does not cost anything: there is nothing to recover.

*Shows* whether attending as the mechanism says is enough, given the rest of the model as it is.

*Does not show* what the head reads from where it attends, nor that the model finds the keys in that way; and a head
that another one can stand in for looks unneeded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.attention_replacement.derived import has_control, permuted_targets
from mnemoscope.analyses.attention_replacement.losses import (
    Change,
    Score,
    SkillLoss,
    means,
    over_skills,
    rise,
    scored,
    yardstick,
)
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.intervention import Intervention, Mean, SetPattern
from mnemoscope.core.patterns import Mechanism, check_names, silent
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills
from mnemoscope.interventions.recordings import Recordings

TOLERANCE = 0.05
"""The largest rise of a loss (nats, or squared error) that still counts as held."""

Head = tuple[int, int]
"""Layer and number in the layer."""
Assignment = Mapping[Head, Mechanism]


def heads(model: HookedModel) -> list[Head]:
    """Every head of a model, layer by layer."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
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
        """The rise of the loss from before, or from the clean run."""
        return rise(after, self.clean if before is None else before, self.by)

    def measured(self, after: Score, before: Score | None = None) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `loss`, `accuracy`, `rise` and `rise_error`."""
        change = self.rise(after, before)
        return over_skills({**means(after, self.by), "rise": change.mean, "rise_error": change.error})

    def measured_clean(self) -> dict[str, tuple[str, np.ndarray]]:
        """Over skill: `clean_loss` and `clean_accuracy`."""
        return over_skills({f"clean_{name}": value for name, value in means(self.clean, self.by).items()})

    def _score(self, interventions: Sequence[Intervention]) -> Score:
        return scored(self.model, self.by, interventions, self.recordings)


def bench(
    model: HookedModel,
    batch: Batch,
    skills: Skills | None,
    *,
    tolerance: float,
    reference: Batch | None = None,
    seed: int = 0,
) -> Bench:
    """A model on a batch, with its clean losses; means come from `reference`, or from the batch."""
    by = yardstick(batch, skills)
    for layer in range(model.cfg.n_layers):
        layer_attention(model, layer, batch)  # refuses NaN, which the logits need not show
    return Bench(
        model=model,
        by=by,
        reference=Named(name="reference", value=batch if reference is None else reference),
        recordings=Recordings(model),
        clean=scored(model, by, []),
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

    `assigned` gives heads (layer, number) their mechanisms; the others keep their attention. The skill `all`, every
    scored position, is added. Every loss may rise by `tolerance` (nats, or squared error).

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
    """True if the control costs something beside the mechanism, or there is none."""
    return other is None or at.rise(other, after).costs(at.tolerance)


def removal(at: Bench, ablated: Score) -> xr.Dataset:
    """The effect of the mean ablation of one head: see `replace_each`."""
    found = {"ablated_loss": means(ablated, at.by)["loss"], "needed": at.rise(ablated).costly(at.tolerance)}
    return xr.Dataset(over_skills(found), coords={"skill": at.by.names})


def by_layer(rows: Sequence[xr.Dataset], model: HookedModel) -> xr.Dataset:
    """Results of every head, in the order of `heads`, over (layer, head)."""
    n_heads = model.cfg.n_heads
    layers = [xr.concat(rows[start : start + n_heads], "head", join="exact") for start in range(0, len(rows), n_heads)]
    result = xr.concat(layers, "layer", join="exact")
    return result.assign_coords(layer=list(range(model.cfg.n_layers)), head=list(range(n_heads)))
