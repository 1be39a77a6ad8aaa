"""What a head's attention is replaced with, and what that does to the loss.

The learned attention of one head is set to the pattern of a mechanism. Loss (nats) and accuracy, for all scored
positions and for each skill, are compared with the clean run, with the head mean-ablated (z replaced by its mean
over a reference set, position by position), and with the mechanism aimed at other targets
(`mechanisms.derived`).

    recovered = (loss ablated - loss with the mechanism) / (loss ablated - loss clean)

is 1 if the mechanism does all that the head does for the skill and 0 if it is no better than the ablation. It is NaN
where the ablation does not cost anything (`mechanisms.bench`): there is nothing to recover.

*Shows* whether attending as the mechanism says is enough, given the rest of the model as it is.

*Does not show* what the head reads from where it attends, nor that the model finds the keys in that way; and a head
that another one can stand in for looks unneeded.
"""

from collections.abc import Sequence

import torch
import xarray as xr

from mnemoscope.analyses.mechanisms.bench import (
    TOLERANCE,
    Assignment,
    Bench,
    Head,
    Score,
    bench,
    described,
    heads,
    means,
    yardstick,
)
from mnemoscope.analyses.mechanisms.derived import has_control, permuted_targets
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
    at = bench(model, yardstick(batch, skills), batch)
    return joint(at, assigned, tolerance)


def joint(at: Bench, assigned: Assignment, tolerance: float) -> xr.Dataset:
    """As `replace_heads`."""
    after = at.with_patterns(assigned)
    change = at.rise(after)
    result = {
        **{name: ("skill", value.numpy()) for name, value in means(after, at.by).items()},
        **{f"clean_{name}": ("skill", value.numpy()) for name, value in means(at.clean, at.by).items()},
        "rise": ("skill", change.mean.numpy()),
        "rise_error": ("skill", change.error.numpy()),
        "holds": ((), change.holds(tolerance)),
    }
    replaced = "; ".join(f"L{layer}H{head}: {m.name}" for (layer, head), m in assigned.items())
    attrs = {**described(at, tolerance), "replaced": replaced, "n_replaced": len(assigned)}
    return xr.Dataset(result, coords={"skill": at.by.names}, attrs=attrs)


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
    at = bench(model, yardstick(batch, skills), batch if reference is None else reference)
    rows = []
    for head in heads(model):
        ablated = at.ablated(head)
        cells = [trial(at, head, m, ablated, tolerance=tolerance, seed=seed) for m in mechanisms]
        rows.append(xr.merge([xr.concat(cells, "mechanism", data_vars="all"), removal(at, ablated, tolerance)]))
    table = by_layer(rows, model).assign_coords(
        mechanism=[m.name for m in mechanisms], n_parameters=("mechanism", [m.n_parameters for m in mechanisms])
    )
    clean = {f"clean_{name}": ("skill", value.numpy()) for name, value in means(at.clean, at.by).items()}
    covered = [float((~silent(m.pattern(batch))).double().mean()) for m in mechanisms]
    return table.assign({**clean, "covered": ("mechanism", covered)}).assign_attrs(described(at, tolerance))


def trial(at: Bench, head: Head, mechanism: Mechanism, ablated: Score, *, tolerance: float, seed: int) -> xr.Dataset:
    """One mechanism in one head: see `replace_each`."""
    after = at.with_patterns({head: mechanism})
    change, cost, left = at.rise(after), at.rise(ablated), at.rise(ablated, after)
    recovered = torch.where(cost.costly(tolerance), left.mean / cost.mean, torch.nan)
    other = control(at, head, mechanism, seed)
    other_loss = torch.full_like(recovered, torch.nan) if other is None else means(other, at.by)["loss"]
    values = {**means(after, at.by), "rise": change.mean, "rise_error": change.error, "control_loss": other_loss}
    by_skill = {name: ("skill", value.numpy()) for name, value in {**values, "recovered": recovered}.items()}
    beats = other is None or at.rise(other, after).costs(tolerance)
    judged = {"holds": ((), change.holds(tolerance)), "beats_control": ((), beats)}
    return xr.Dataset({**by_skill, **judged}, coords={"skill": at.by.names})


def control(at: Bench, head: Head, mechanism: Mechanism, seed: int) -> Score | None:
    """With the mechanism aimed at other targets; none if there are no others."""
    if not has_control(mechanism, at.by.batch):
        return None
    return at.with_patterns({head: permuted_targets(mechanism, seed=seed)})


def beats_control(at: Bench, head: Head, mechanism: Mechanism, after: Score, tolerance: float, seed: int) -> bool:
    """Whether it costs something to aim the mechanism at other targets, or there are no others."""
    other = control(at, head, mechanism, seed)
    return other is None or at.rise(other, after).costs(tolerance)


def removal(at: Bench, ablated: Score, tolerance: float) -> xr.Dataset:
    """What the mean ablation of one head does: see `replace_each`."""
    loss, needed = means(ablated, at.by)["loss"], at.rise(ablated).costly(tolerance)
    arrays = {"ablated_loss": ("skill", loss.numpy()), "needed": ("skill", needed.numpy())}
    return xr.Dataset(arrays, coords={"skill": at.by.names})


def by_layer(rows: Sequence[xr.Dataset], model: HookedModel) -> xr.Dataset:
    """Results of every head, in the order of `heads`, over (layer, head)."""
    n_heads = model.cfg.n_heads
    layers = [xr.concat(rows[start : start + n_heads], "head", join="exact") for start in range(0, len(rows), n_heads)]
    result = xr.concat(layers, "layer", join="exact")
    return result.assign_coords(layer=list(range(model.cfg.n_layers)), head=list(range(n_heads)))
