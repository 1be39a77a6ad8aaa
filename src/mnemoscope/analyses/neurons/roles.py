"""Neurons grouped by what they say and by whom they serve.

The rule is fixed; none of its numbers was fitted to a result.

*What*: `silent`, if the neuron is never active; `constant`, if its state never changes. Else consider the latents about
which it says more than the control level (`selectivity`) and which explain at least `MIN_EXPLAINED` of its entropy.
None: `none`. Otherwise the role is the simplest latent (of the smallest entropy; of equals the first) among those that
explain at least `NEARLY` as much as the best does, named by its family: `recalled`, `unused`, `source_slot`, `y`,
`position`, ... The simplest, because a latent that says all that another says, and more, never explains less.

*Whom*, if effects are given: `+skill` where removing the neuron costs the skill log-probability, `-skill` where it
helps, by at least `MIN_SHARE` of what removing the whole layer changes and by at least three standard errors. Silent
where the layer does not carry the skill (`neurons.carried`), as in untrained models.

A role by information is descriptive: it says which latent the activity goes with, and random weights give such roles
too, mostly of the token at hand. Neurons that combine two latents get the one that explains more of them, or none.
"""

import numpy as np
import xarray as xr

from mnemoscope.analyses.neurons.activity import family
from mnemoscope.analyses.neurons.carried import N_ERRORS
from mnemoscope.core.errors import InputError, one_of

MIN_EXPLAINED = 0.1
"""Share of a neuron's entropy."""
NEARLY = 0.9
"""Share of what the best latent explains."""
MIN_SHARE = 0.01
"""Share of the whole layer's effect."""


def neuron_roles(information: xr.Dataset, effects: xr.Dataset | None = None, *, kind: str = "mean") -> xr.Dataset:
    """The role of each neuron.

    Args:
        information: From `selectivity`.
        effects: From `neuron_effects` of the same layer; none: roles by information only.
        kind: By which ablation neurons serve a skill.

    Returns:
        Over neuron: `role`; `latent`, the latent it was named after, or an empty string; `explains`, NaN without one;
        `group`, the role and whom it serves (`recalled +recall`). With effects `serves` over (neuron, skill): 1, 0
        or -1.

    Raises:
        InputError: Effects of another layer, or without that kind.
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
    """The neurons of each role, for `group_effects`.

    Args:
        roles: From `neuron_roles`.
        by: `role`: what they say; `group`: and whom they serve.
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
