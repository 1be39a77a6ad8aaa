"""Neurons grouped by what they say and by which skill they serve, and all that is known of the neurons of a layer.

The rule is fixed; none of its numbers was fitted to a result.

*What*: `silent`, if the neuron is never active; `constant`, if its state never changes. Else consider the latents about
which it says more than the control level (`selectivity`) and which explain at least `MIN_EXPLAINED` of its entropy.
None: `none`. Otherwise the role is the simplest latent (of the smallest entropy; of equals the first) among those that
explain at least `NEARLY` as much as the best does, named by its family: `y` for `y[2]`, `input` for `input@3`,
`position`, ... The simplest, because a latent that says all that another says, and more, never explains less.

*Whom*, if effects are given: `+skill` where removing the neuron costs the skill log-probability, `-skill` where it
helps, by at least `MIN_SHARE` of what removing the whole layer changes and by at least three standard errors. Silent
where the layer does not carry the skill (`neurons.effects`), as in untrained models.

A role by information is descriptive: it says which latent the activity goes with, and random weights give such roles
too, mostly of the token at hand. Neurons that combine two latents get the one that explains more of them, or none.

`read_neurons` puts keys, values, selectivity, roles, effects and shares together so that runs can be compared; what
each shows and does not show stands in its own module. Neuron numbers mean nothing across seeds: what is compared are
roles, by number and by effect.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from mnemoscope.analyses.ablation import Removal
from mnemoscope.analyses.neurons.activity import family, neuron_activity, selectivity
from mnemoscope.analyses.neurons.effects import N_ERRORS, group_effects, neuron_effects
from mnemoscope.analyses.neurons.key_value_agreement import neuron_agreement
from mnemoscope.analyses.neurons.keys_values import neuron_keys, neuron_values
from mnemoscope.analyses.neurons.shares import neuron_shares
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills

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
    """The neurons of each role, for `group_effects`, by `role` (what they say) or `group` (and whom they serve)."""
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
    return family(name), name, float(explains[chosen])


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


def read_neurons(
    model: HookedModel,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    inputs: Batch,
    layer: int = 0,
    kind: Removal = "mean",
    seed: int = 0,
) -> dict[str, xr.Dataset]:
    """All analyses of the neurons of a layer.

    One half of `batch` ranks the neurons, the other is measured. Means come from `reference`. Selectivity is taken over
    `inputs`, such as an enumeration with its weights. Groups and roles are judged by the ablation `kind`. Controls,
    halves and random orders come from the seed's streams.

    Returns:
        `neurons`: keys, values, role, explains, serves and effects over neuron. `selectivity` over (neuron, latent).
        `roles` over (role, skill): how many neurons each role has (`size`) and the skills without them, every role
        that a latent of the batch could give, NaN where no neuron has it. `agreement`, `shares`: as their modules.
    """
    activity = neuron_activity(model, inputs, layer=layer)
    values, information = neuron_values(model, layer=layer), selectivity(activity, seed=seed)
    one = {"skills": skills, "reference": reference, "layer": layer, "seed": seed}
    effects = neuron_effects(model, batch, kinds=(kind,), **one)
    named = neuron_roles(information, effects, kind=kind)
    groups = group_effects(model, batch, role_groups(named, "role"), kinds=(kind,), **one)
    known = [*sorted({family(str(name)) for name in information.latent.values}), *WITHOUT_LATENT]
    return {
        "neurons": _merged(neuron_keys(model, layer=layer), values, named, effects.sel(kind=kind, drop=True)),
        "selectivity": information,
        "roles": _every_role(groups.sel(kind=kind, drop=True), known),
        "agreement": neuron_agreement(activity, values, seed=seed),
        "shares": neuron_shares(model, batch, kind=kind, **one),
    }


def _merged(*parts: xr.Dataset) -> xr.Dataset:
    attrs = {name: value for part in reversed(parts) for name, value in part.attrs.items()}
    return xr.merge(parts, combine_attrs="drop").assign_attrs(attrs)


def _every_role(groups: xr.Dataset, known: Sequence[str]) -> xr.Dataset:
    """The effects of groups over a fixed list of roles, so that seeds can be put together."""
    result = groups.rename(group="role").reindex(role=list(known))
    return result.assign(size=result["size"].fillna(0).astype(np.int64))
