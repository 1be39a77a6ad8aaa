"""What a head's attention is replaced with, and what that does to the loss.

The learned attention of one head is set to the pattern of a mechanism. Loss (nats) and accuracy, for all scored
positions and for each skill, are compared with the clean run, with the head mean-ablated (z replaced by its mean
over a reference set, position by position), and with the mechanism aimed at other targets
(`derived`).

    recovered = (loss ablated - loss with the mechanism) / (loss ablated - loss clean)

is 1 if the mechanism does all that the head does for the skill and 0 if it is no better than the ablation. It is NaN
where the ablation does not cost anything (`bench`): there is nothing to recover.

*Shows* whether attending as the mechanism says is enough, given the rest of the model as it is.

*Does not show* what the head reads from where it attends, nor that the model finds the keys in that way; and a head
that another one can stand in for looks unneeded.
"""

from collections.abc import Sequence

import torch
import xarray as xr

from mnemoscope.analyses.attention_replacement.bench import (
    TOLERANCE,
    Assignment,
    Bench,
    Head,
    Score,
    bench,
    heads,
    means,
    over_skills,
)
from mnemoscope.analyses.attention_replacement.derived import has_control, permuted_targets
from mnemoscope.core.batch import Batch
from mnemoscope.core.mechanism import Mechanism, check_names, silent
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills


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

    Args:
        model: Any hooked model.
        batch: The sequences.
        mechanisms: What to try; where one says nothing the learned row stays.
        skills: For each skill the positions whose answer it alone gives; `all`, every scored position, is added.
        reference: For the means; none: the batch.
        tolerance: Nats by which a loss may rise and still count as held.
        seed: Of the permuted targets.

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
