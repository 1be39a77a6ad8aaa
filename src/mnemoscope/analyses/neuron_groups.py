r"""Neurons by what they say and whom they serve, the agreement of keys and values, and all that is known of a layer.

*Agreement*: whether neurons fire for inputs whose answer their value promotes. For each neuron, over the tokens t that
occur as a target:

- `correlation`: Pearson's r, over t, between the mean activation given target t and the value's logit for t,
- `trigger_agreement`: the share of the neuron's trigger examples whose target is the token that the value promotes
  most (Geva et al., 2021, section 4, who compare the top token with the next token of the strongest trigger),
- `trigger_conflict`: the share whose target is the token that it suppresses most. A neuron that fires on everything
  but t and writes against t agrees by having no such trigger; its top token means little.

The control gives the tokens of all values another order, the same for all neurons, many times. `correlation_p` and
`trigger_agreement_p` are the shares of orders (the true one among them) whose mean over neurons is at least as large,
`trigger_conflict_p` of those whose mean is at most as large. All neurons share the order, so that neurons that resemble
each other do not count as independent evidence. With V tokens there are V! orders: below five a p says little. It does
not show that the model's answers come from there (`neuron_effects`). In an early layer a value that later layers
translate agrees with nothing. A neuron that fires on used-up answers and suppresses them agrees as well, since it is
silent where they are the target.

*Roles* follow a fixed rule; none of its numbers was fitted to a result. What a neuron says: `silent`, if it is never
active; `constant`, if its state never changes. Else consider the latents about which it says more than the control
level (`selectivity`) and which explain at least `MIN_EXPLAINED` of its entropy. None: `none`. Otherwise the role is the
simplest latent (of the smallest entropy; of equals the first) among those that explain at least `NEARLY` as much as the
best does, named by its family: `y` for `y[2]`, `input` for `input@3`. The simplest, because a latent that says all that
another says, and more, never explains less. Whom it serves, if effects are given: `+skill` where removing the neuron
costs the skill log-probability, `-skill` where it helps, by at least `MIN_SHARE` of what removing the whole layer
changes and by at least three standard errors. It serves nobody where the layer does not carry the skill
(`neuron_removal`), as in untrained models.

A role by information is descriptive, and random weights give such roles too, mostly of the token at hand. Neurons that
combine two latents get the one that explains more of them, or none. Neuron numbers mean nothing across seeds: what is
compared are roles, by number and by effect.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.neuron_removal import N_ERRORS, group_effects, neuron_effects, neuron_shares
from mnemoscope.analyses.neurons import (
    NeuronActivity,
    latent_family,
    neuron_activity,
    neuron_keys,
    neuron_values,
    selectivity,
)
from mnemoscope.analyses.units import Units, has_keys
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import RemovalKind
from mnemoscope.core.numerics import quantise, to_numpy
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import Skills


def top_inputs(activity: NeuronActivity, *, n: int = 10) -> xr.Dataset:
    """The rows at which each neuron is most active.

    Fewer than `n` where there are not as many rows; of equals the earlier row comes first. Raises InputError for n
    below one.

    Returns:
        `active`, over (neuron, rank): whether there is such a row with an activation above zero; and where there is:
        `activation`, `sequence` (the row of `activity.batch`) and `pos` over (neuron, rank), `inputs` over (neuron,
        rank, input_pos), `latents` over (neuron, rank, latent). Elsewhere activations and latents are NaN and the
        others -1.

    >>> activity = ms.analyses.neuron_activity(model, batch)
    >>> ms.analyses.top_inputs(activity, n=3).activation.dims
    ('neuron', 'rank')
    """
    in_range("n", n, 1, math.inf)
    rows = top_rows(activity, n)
    activation = activity.activation.gather(0, rows.clamp(min=0).T).T
    known = torch.stack(list(activity.latents.values()), -1).double()
    place = ("neuron", "rank")
    arrays = {
        "active": (place, rows >= 0, False),
        "activation": (place, activation, torch.nan),
        "sequence": (place, activity.sequence[rows], -1),
        "pos": (place, activity.pos[rows], -1),
        "inputs": ((*place, "input_pos"), activity.batch.inputs[activity.sequence[rows]], -1),
        "latents": ((*place, "latent"), known[rows], torch.nan),
    }
    variables = {}
    for name, (dims, values, absent) in arrays.items():
        absent_here = (rows < 0).view(*rows.shape, *[1] * (values.ndim - 2))
        variables[name] = (dims, to_numpy(values.masked_fill(absent_here, absent)))
    coords = {"neuron": range(len(rows)), "rank": range(1, rows.shape[1] + 1), "latent": list(activity.latents)}
    return xr.Dataset(variables, coords=coords, attrs={"layer": activity.layer, "n": len(activity.batch)})


def top_rows(activity: NeuronActivity, n: int) -> Int[Tensor, "neuron rank"]:
    """The rows of the `n` highest activations, the highest first; -1 where the neuron is not active."""
    steps = quantise(activity.activation)
    ordered, rows = steps.sort(dim=0, descending=True, stable=True)
    return rows.masked_fill(ordered <= 0, -1)[:n].T


def neuron_agreement(
    activity: NeuronActivity, values: xr.Dataset, *, n_triggers: int = 10, n_draws: int = 200, seed: int = 0
) -> xr.Dataset:
    """Agreement of keys and values.

    The targets of `activity` are the answers. `values` are of all neurons of the same model and layer. A neuron that is
    active on fewer rows has fewer triggers. Orders of the tokens for the control come from the seed's stream `control`.
    Raises InputError where values are of other neurons, fewer than two tokens occur as a target, or no triggers or
    draws are wanted.

    Returns:
        `correlation`, `trigger_agreement` and `trigger_conflict` over neuron, NaN for a neuron that is never active,
        and `correlation` also with two tokens, or where activation or value is the same for all tokens; `top_token`
        over neuron; `activation`, the mean given the target, and `value` over (neuron, token). For each measure its
        mean over neurons (`correlation_mean`, ...), that of every draw of the control (`correlation_control`, ..., over
        draw) and `correlation_p`, ....

    >>> activity = ms.analyses.neuron_activity(model, batch)
    >>> ms.analyses.neuron_agreement(activity, ms.analyses.neuron_values(model), n_draws=20).correlation.dims
    ('neuron',)
    """
    in_range("n_triggers", n_triggers, 1, math.inf)
    in_range("n_draws", n_draws, 1, math.inf)
    _check_same_neurons(activity, values)
    tokens, target = activity.latents["target"].unique(return_inverse=True)
    if len(tokens) < 2:
        raise InputError(f"agreement compares answers, at least two; the targets are {tokens.tolist()}")
    given = _mean_by_target(activity, target, len(tokens))
    value = torch.from_numpy(values.value.sel(token=to_numpy(tokens)).values).to(given)
    triggered = _trigger_targets(activity, target, len(tokens), n_triggers)

    def measured(value: Tensor) -> dict[str, Float[Tensor, " neuron"]]:
        top, bottom = value.argmax(1, keepdim=True), value.argmin(1, keepdim=True)
        return {
            "correlation": _correlation(given, value),
            "trigger_agreement": triggered.gather(1, top)[:, 0],
            "trigger_conflict": triggered.gather(1, bottom)[:, 0],
        }

    stream = generator(seed, "control")
    orders = [torch.randperm(len(tokens), generator=stream).to(given.device) for _ in range(n_draws)]
    true, drawn = measured(value), [measured(value[:, order]) for order in orders]
    arrays = {
        "activation": (("neuron", "token"), given),
        "value": (("neuron", "token"), value),
        "top_token": (("neuron",), tokens[value.argmax(1)]),
        **{name: (("neuron",), figures) for name, figures in true.items()},
        **_against_control(true, drawn),
    }
    return xr.Dataset(
        {name: (dims, to_numpy(figures)) for name, (dims, figures) in arrays.items()},
        coords={"neuron": values.neuron, "token": to_numpy(tokens)},
        attrs={"layer": activity.layer, "n": len(activity.batch), "n_triggers": n_triggers, "path": "direct"},
    )


def _check_same_neurons(activity: NeuronActivity, values: xr.Dataset) -> None:
    n, layer = activity.activation.shape[1], values.attrs["layer"]
    if layer != activity.layer or values.neuron.values.tolist() != list(range(n)):
        given = f"{values.sizes['neuron']} of layer {layer}"
        raise InputError(f"values must be those of all {n} neurons of layer {activity.layer}, in order; got {given}")


def _mean_by_target(activity: NeuronActivity, target: Tensor, n_tokens: int) -> Float[Tensor, "neuron token"]:
    weights, values = activity.weights, torch.arange(n_tokens, device=target.device)
    member = (target[:, None] == values) * weights[:, None]
    return torch.einsum("rn,rt->nt", activity.activation, member / member.sum(0))


def _trigger_targets(
    activity: NeuronActivity, target: Int[Tensor, " row"], n_tokens: int, n: int
) -> Float[Tensor, "neuron token"]:
    """The distribution of the targets of each neuron's trigger examples; NaN without any."""
    rows = top_rows(activity, n)
    values = torch.arange(n_tokens, device=target.device)
    member = (target[rows][:, :, None] == values) & (rows >= 0)[:, :, None]
    return member.double().sum(1) / (rows >= 0).sum(1, keepdim=True)


def _correlation(left: Float[Tensor, "neuron token"], right: Float[Tensor, "neuron token"]) -> Float[Tensor, " neuron"]:
    """Pearson's r over tokens; NaN where one side does not vary, or with two tokens, between which it always is one."""
    if left.shape[1] == 2:
        return torch.full_like(left[:, 0], torch.nan)
    sides = [side - side.mean(1, keepdim=True) for side in (left, right)]
    flat = [(quantise(side) == 0).all(1) for side in sides]
    lengths = sides[0].norm(dim=1) * sides[1].norm(dim=1)
    return ((sides[0] * sides[1]).sum(1) / lengths).masked_fill(flat[0] | flat[1], torch.nan)


def _against_control(
    true: dict[str, Tensor], drawn: list[dict[str, Tensor]]
) -> dict[str, tuple[tuple[str, ...], Tensor]]:
    """Means over neurons, those of every draw, and how often a draw agrees at least as well."""
    result: dict[str, tuple[tuple[str, ...], Tensor]] = {}
    for name, figures in true.items():
        mean, control = figures.nanmean(), torch.stack([draw[name].nanmean() for draw in drawn])
        sign = -1 if name == "trigger_conflict" else 1
        p = (1 + (sign * control >= sign * mean - 1e-12).sum()) / (1 + len(control))
        p = torch.where(mean.isnan(), torch.nan, p)
        result |= {f"{name}_mean": ((), mean), f"{name}_control": (("draw",), control), f"{name}_p": ((), p)}
    return result


MIN_EXPLAINED = 0.1
"""Share of a neuron's entropy."""
NEARLY = 0.9
"""Share of what the best latent explains."""
MIN_SHARE = 0.01
"""Share of the whole layer's effect."""


def neuron_roles(information: xr.Dataset, effects: xr.Dataset | None = None, *, kind: str = "mean") -> xr.Dataset:
    """The role of each neuron.

    `information` comes from `selectivity`, `effects` from `neuron_effects` of the same layer; without these, roles are
    by information only. `kind` is the ablation by which neurons serve a skill. Raises InputError for effects of another
    layer, or without that kind.

    Returns:
        Over neuron: `role`; `latent`, the latent it was named after, or an empty string; `explains`, NaN without one;
        `group`, the role and whom it serves (`position +copying`). With effects `serves` over (neuron, skill): 1, 0
        or -1.

    >>> tuned = ms.analyses.selectivity(ms.analyses.neuron_activity(model, batch))
    >>> ms.analyses.neuron_roles(tuned).role.dims
    ('neuron',)
    """
    named = [_named(information.isel(neuron=i)) for i in range(information.sizes["neuron"])]
    role, latent, explains = zip(*named, strict=True)
    result = xr.Dataset(
        {"role": ("neuron", list(role)), "latent": ("neuron", list(latent)), "explains": ("neuron", list(explains))},
        coords={"neuron": information.neuron},
        attrs={
            "layer": information.attrs["layer"],
            "min_explained": MIN_EXPLAINED,
            "nearly": NEARLY,
            "min_share": MIN_SHARE,
        },
    )
    if effects is None:
        return result.assign(group=result.role)
    serves = _serves(information, effects, kind)
    labels = [_suffix(serves.isel(neuron=i)) for i in range(len(role))]
    group = [" ".join([name, *suffix]) for name, suffix in zip(role, labels, strict=True)]
    return result.assign(serves=serves, group=("neuron", group)).assign_attrs(kind=kind)


def role_groups(roles: xr.Dataset, by: str = "group") -> dict[str, list[int]]:
    """The neurons of each role, for `group_effects`, by `role` (what they say) or `group` (and whom they serve).

    >>> tuned = ms.analyses.selectivity(ms.analyses.neuron_activity(model, batch))
    >>> sorted(ms.analyses.role_groups(ms.analyses.neuron_roles(tuned)))
    ['none', 'recalled', 'silent', 'source_slot', 'target', 'token', 'unused', 'y']
    """
    one_of("by", by, ("role", "group"))
    names = roles[by].values.tolist()
    return {name: [i for i, other in enumerate(names) if other == name] for name in sorted(set(names))}


def _named(neuron: xr.Dataset) -> tuple[str, str, float]:
    """Role, latent and share explained of one neuron."""
    if neuron.active == 0:
        return "silent", "", np.nan
    if np.isnan(neuron.explains).all():
        return "constant", "", np.nan
    explains = neuron.explains.values
    candidates = (neuron.information.values > neuron.control_level.values) & (explains >= MIN_EXPLAINED)
    if not candidates.any():
        return "none", "", np.nan
    near = np.flatnonzero(candidates & (explains >= NEARLY * explains[candidates].max()))
    chosen = near[neuron.latent_entropy.values[near].round(9).argmin()]
    name = str(neuron.latent.values[chosen])
    return latent_family(name), name, float(explains[chosen])


def _serves(information: xr.Dataset, effects: xr.Dataset, kind: str) -> xr.DataArray:
    one_of("kind", kind, effects.kind.values.tolist())
    if effects.attrs["layer"] != information.attrs["layer"] or effects.sizes["neuron"] != information.sizes["neuron"]:
        raise InputError(
            f"effects must be of the neurons of layer {information.attrs['layer']}; got layer {effects.attrs['layer']}"
        )
    at = effects.sel(kind=kind, drop=True)
    drop, whole = at.clean_log_prob - at.log_prob, at.clean_log_prob - at.layer_log_prob
    enough = (abs(drop) >= MIN_SHARE * abs(whole)) & (abs(drop) >= N_ERRORS * at.log_prob_error)
    measurable = at.measurable.sel(metric="log_prob", drop=True)
    return np.sign(drop).where(enough & measurable & (drop != 0), 0).astype(int).transpose("neuron", "skill")


def _suffix(serves: xr.DataArray) -> list[str]:
    signs = {1: "+", -1: "-"}
    pairs = zip(serves.skill.values.tolist(), serves.values.tolist(), strict=True)
    return [signs[sign] + skill for skill, sign in pairs if sign]


WITHOUT_LATENT = ("none", "constant", "silent")
N_TOP = 3
"""Rows that are kept of each neuron."""


def read_neurons(
    model: ModelLike,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    inputs: Batch,
    layer: int = 0,
    units: Units = "neurons",
    kind: RemovalKind = "mean",
    seed: int = 0,
) -> dict[str, xr.Dataset]:
    """All analyses of the neurons of a layer, or of the features of its dictionary (`units`).

    Features of a dictionary that reads something else than the stream before the MLP have no keys here.

    One half of `batch` ranks the neurons, the other is measured. Means come from `reference`. Selectivity is taken over
    `inputs`, such as an enumeration with its weights. Groups and roles are judged by the ablation `kind`. Controls,
    halves and random orders come from the seed's streams.

    Returns:
        `neurons`: keys, values, role, explains, serves and effects over neuron. `top`: the `N_TOP` rows of `inputs` on
        which each is most active, over (neuron, rank). `selectivity` over (neuron, latent).
        `roles` over (role, skill): how many neurons each role has (`size`) and the skills without them, every role
        that a latent of the batch could give, NaN where no neuron has it. `agreement`, `shares`: as their modules.
        Where outputs are classes, values and `agreement` have the axis `class` in place of `token`.

    >>> sorted(ms.analyses.read_neurons(model, batch, skills=skills, reference=batch, inputs=batch))
    ['agreement', 'neurons', 'roles', 'selectivity', 'shares', 'top']
    """
    model = resolve_model(model, batch=batch, reference=reference, inputs=inputs)
    of_layer: Any = {"layer": layer, "units": units}
    activity = neuron_activity(model, inputs, **of_layer)
    values, information = neuron_values(model, **of_layer), selectivity(activity, seed=seed)
    one = {"skills": skills, "reference": reference, "seed": seed, **of_layer}
    effects = neuron_effects(model, batch, kinds=(kind,), **one)
    named = neuron_roles(information, effects, kind=kind)
    groups = group_effects(model, batch, role_groups(named, "role"), kinds=(kind,), **one)
    known = [*sorted({latent_family(str(name)) for name in information.latent.values}), *WITHOUT_LATENT]
    keys = [neuron_keys(model, **of_layer)] if has_keys(model, layer, units) else []
    written = _name_classes(values, batch.classes)
    return {
        "neurons": _merged(*keys, written, named, effects.sel(kind=kind, drop=True)),
        "top": top_inputs(activity, n=N_TOP)[["active", "activation", "inputs", "pos"]],
        "selectivity": information,
        "roles": _fill_roles(groups.sel(kind=kind, drop=True), known),
        "agreement": _name_classes(neuron_agreement(activity, values, seed=seed), batch.classes),
        "shares": neuron_shares(model, batch, kind=kind, **one),
    }


def _name_classes(found: xr.Dataset, classes: Sequence[str]) -> xr.Dataset:
    """The same with its axis of outputs named by classes, where there are some: tokens are something else there."""
    if not classes:
        return found
    names = [classes[int(number)] for number in found.token.values]
    return found.rename(token="class").assign_coords({"class": names})


def _merged(*parts: xr.Dataset) -> xr.Dataset:
    attrs = {name: value for part in reversed(parts) for name, value in part.attrs.items()}
    return xr.merge(parts, combine_attrs="drop").assign_attrs(attrs)


def _fill_roles(groups: xr.Dataset, known: Sequence[str]) -> xr.Dataset:
    """The effects of groups over a fixed list of roles, so that seeds can be put together."""
    result = groups.rename(group="role").reindex(role=list(known))
    return result.assign(size=result["size"].fillna(0).astype(np.int64))
