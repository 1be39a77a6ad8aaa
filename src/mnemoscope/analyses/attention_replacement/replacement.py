"""The replacement of a head's attention by a mechanism, its effect on the loss, and the mechanism's control.

The learned attention of one head is set to the pattern of a mechanism. Loss (nats) and accuracy are given for all
scored positions and for each skill; for vectors, the squared error, also of each part of the answers. They are compared
with the clean run, with the mean-ablated head (z replaced by its mean over a reference set, position by position), and
with the mechanism aimed at other targets. `losses` says when a change is more than noise.

    recovered = (loss ablated - loss with the mechanism) / (loss ablated - loss clean)

is 1 if the mechanism does all that the head does for the skill and 0 if it is no better than the ablation. It is NaN
where the ablation does not cost anything: there is nothing to recover.

*Aimed at other targets*, with the same pattern: where the pattern of a query differs between sequences, a sequence gets
that of another sequence whose pattern is different. Where it is the same in all of them, it is moved to other keys up
to the query, drawn anew for every sequence. A row that is even over all keys has no other targets and stays. A
mechanism that is no better than this control says nothing about where the head looks. The control is conservative: of a
pattern on many keys some stay where they were.

*Shows* whether attending as the mechanism says is enough, given the rest of the model as it is.

*Does not show* what the head reads from where it attends, nor that the model finds the keys in that way; and a head
that another one can stand in for looks unneeded.
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.attention_replacement.losses import (
    TOLERANCE,
    Assignment,
    HeadIndex,
    LossMeter,
    Score,
    loss_meter,
    mean_scores,
    skill_variables,
)
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.patterns import TOLERANCE as ROUNDING
from mnemoscope.core.patterns import Mechanism, check_names, unspecified_queries
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import Skills


def replace_heads(
    model: ModelLike,
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

    >>> found = ms.analyses.replace_heads(model, batch, {(0, 0): ms.core.patterns.uniform()})
    >>> sorted(found)
    ['accuracy', 'clean_accuracy', 'clean_loss', 'holds', 'loss', 'rise', 'rise_error']
    """
    model = resolve_model(model, batch=batch)
    return replace_together(loss_meter(model, batch, skills, tolerance=tolerance), assigned)


def replace_together(at: LossMeter, assigned: Assignment) -> xr.Dataset:
    """The result of `replace_heads`."""
    after = at.with_patterns(assigned)
    found = {**at.loss_variables(after), **at.clean_variables(), "holds": ((), at.loss_rise(after).holds(at.tolerance))}
    replaced = "; ".join(f"L{layer}H{head}: {m.name}" for (layer, head), m in assigned.items())
    attrs = {**at.attrs, "replaced": replaced, "n_replaced": len(assigned)}
    return xr.Dataset(found, coords={"skill": at.by.names}, attrs=attrs)


@check_arguments
def replace_each(
    model: ModelLike,
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

    >>> found = ms.analyses.replace_each(model, batch, [ms.core.patterns.uniform()])
    >>> found.holds.dims
    ('layer', 'head', 'mechanism')
    """
    model = resolve_model(model, batch=batch)
    check_names(mechanisms)
    at = loss_meter(model, batch, skills, tolerance=tolerance, reference=reference, seed=seed)
    rows = []
    for head in at.heads:
        ablated = at.score_ablated(head)
        cells = [replace_one(at, head, mechanism, ablated) for mechanism in mechanisms]
        rows.append(xr.merge([xr.concat(cells, "mechanism", data_vars="all"), ablation_effect(at, ablated)]))
    table = at.by_layer(rows).assign_coords(
        mechanism=[m.name for m in mechanisms], n_parameters=("mechanism", [m.n_parameters for m in mechanisms])
    )
    covered = [float((~unspecified_queries(m.pattern(batch))).double().mean()) for m in mechanisms]
    return table.assign({**at.clean_variables(), "covered": ("mechanism", covered)}).assign_attrs(at.attrs)


def replace_one(at: LossMeter, head: HeadIndex, mechanism: Mechanism, ablated: Score) -> xr.Dataset:
    """One mechanism in one head: see `replace_each`."""
    after = at.with_patterns({head: mechanism})
    cost, left = at.loss_rise(ablated), at.loss_rise(ablated, after)
    recovered = torch.where(cost.costly(at.tolerance), left.mean / cost.mean, torch.nan)
    control = control_score(at, head, mechanism)
    control_loss = torch.full_like(recovered, torch.nan) if control is None else mean_scores(control, at.by)["loss"]
    judged = {
        "holds": ((), at.loss_rise(after).holds(at.tolerance)),
        "beats_control": ((), beats_control(at, control, after)),
    }
    compared = skill_variables({"control_loss": control_loss, "recovered": recovered})
    return xr.Dataset({**at.loss_variables(after), **compared, **judged}, coords={"skill": at.by.names})


def ablation_effect(at: LossMeter, ablated: Score) -> xr.Dataset:
    """`ablated_loss` and `needed` of one head: see `replace_each`."""
    found = {"ablated_loss": mean_scores(ablated, at.by)["loss"], "needed": at.loss_rise(ablated).costly(at.tolerance)}
    return xr.Dataset(skill_variables(found), coords={"skill": at.by.names})


def control_score(at: LossMeter, head: HeadIndex, mechanism: Mechanism) -> Score | None:
    """The score with the mechanism aimed at other targets; none if there are no others."""
    if not has_control(mechanism, at.by.batch):
        return None
    return at.with_patterns({head: permuted_targets(mechanism, seed=at.seed)})


def beats_control(at: LossMeter, control: Score | None, after: Score) -> bool:
    """True if the control costs something beside the mechanism, or there is none."""
    return control is None or at.loss_rise(control, after).costs(at.tolerance)


def permuted_targets(mechanism: Mechanism, *, seed: int = 0) -> Mechanism:
    """The mechanism with its targets exchanged, by the seed's stream `permuted targets`."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        rows = mechanism.pattern(batch).clone()
        stream = generator(seed, "permuted targets", mechanism.name)
        covered = ~unspecified_queries(rows)
        for query in range(1, rows.shape[1]):
            chosen = covered[:, query]
            if chosen.any():
                rows[chosen, query, : query + 1] = _exchanged(rows[chosen, query, : query + 1], stream)
        return rows

    return Mechanism(name=f"{mechanism.name}, targets permuted", pattern=pattern, n_parameters=mechanism.n_parameters)


def has_control(mechanism: Mechanism, batch: Batch) -> bool:
    """True if the pattern has other targets to be aimed at: if any row is not even over all keys."""
    rows = mechanism.pattern(batch)
    n_pos = rows.shape[1]
    even = torch.ones(n_pos, n_pos, device=rows.device).tril() / torch.arange(1, n_pos + 1, device=rows.device)[:, None]
    return bool((((rows - even).abs().sum(-1) > ROUNDING) & ~unspecified_queries(rows)).any())


def _exchanged(rows: Float[Tensor, "row key"], stream: torch.Generator) -> Float[Tensor, "row key"]:
    """Rows of other sequences that are different, or, where all are the same, with the keys permuted."""
    kinds, kind, sizes = rows.unique(dim=0, return_inverse=True, return_counts=True)
    if len(kinds) > 1:  # for every row one of another kind, each equally likely
        ordered = kind.argsort(stable=True)
        own_end = sizes.cumsum(0)[kind]
        n_others = len(kind) - sizes[kind]
        step = (torch.rand(len(kind), generator=stream, dtype=torch.double).to(kind.device) * n_others).long()
        return rows[ordered[(own_end + step) % len(kind)]]
    draws = torch.rand(rows.shape, generator=stream, dtype=torch.float32).to(rows.device)
    if int((rows[0] > 0).sum()) == 1:  # one target: never the same one again
        draws = draws.masked_fill(rows > 0, -1.0)
        return torch.zeros_like(rows).scatter(1, draws.argmax(1, keepdim=True), 1.0)
    return rows.gather(1, draws.argsort(1))
