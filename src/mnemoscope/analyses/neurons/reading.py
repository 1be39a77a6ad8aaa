"""Everything about the neurons of one layer: keys, values, selectivity, roles, effects and shares.

It puts the analyses of neurons together so that runs can be compared; what each shows and does not show stands in its
own module. Neuron numbers mean nothing across seeds: what is compared are roles, by number and by effect.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from mnemoscope.analyses.ablation.removal import Removal
from mnemoscope.analyses.neurons.activity import family, neuron_activity
from mnemoscope.analyses.neurons.agreement import neuron_agreement
from mnemoscope.analyses.neurons.effects import group_effects, neuron_effects
from mnemoscope.analyses.neurons.keys_values import neuron_keys, neuron_values
from mnemoscope.analyses.neurons.roles import neuron_roles, role_groups
from mnemoscope.analyses.neurons.selectivity import selectivity
from mnemoscope.analyses.neurons.shares import neuron_shares
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills

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

    Args:
        model: With an MLP of two matrices.
        batch: Sequences that test the skills; one half ranks the neurons, the other is measured.
        skills: For each skill the positions whose answer it alone gives.
        reference: Sequences that means come from.
        inputs: The input space that selectivity is taken over, such as an enumeration with its weights.
        layer: Whose neurons.
        kind: By which ablation groups and roles are judged.
        seed: Controls, halves and random orders come from this seed's streams.

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
