"""Which skill is lost when a neuron, or a group of neurons, is removed.

A neuron's activation (`post`) is replaced at all positions by zero, by its mean over a reference set, or by its
activation in another sequence of that set. For each skill: accuracy and mean log-probability of the answer (nats).

It shows that neurons are needed for a skill on this distribution, given the rest of the model as it is. Neurons that
can stand in for each other all look unneeded one at a time: remove them as a group, or see `neuron_shares`. A fall of
the log-probability is no proof of a memory: any neuron that the answer depends on has one.
"""

from collections.abc import Mapping, Sequence

import torch
import xarray as xr

from mnemoscope.analyses.ablation.removal import REPLACEMENTS, Removal
from mnemoscope.analyses.neurons.block import mlp_block
from mnemoscope.analyses.neurons.carried import CRITERION, METRICS, measurable
from mnemoscope.analyses.neurons.removal import Cells, bench, without
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills


def neuron_effects(
    model: HookedModel,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    kinds: Sequence[Removal] = REPLACEMENTS,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one neuron of a layer removed at a time.

    Args:
        model: With an MLP of two matrices.
        batch: Sequences that test the skills; its weights, if it has them, count within a skill.
        skills: For each skill the positions whose answer it alone gives (`task.skills(batch)`).
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        layer: Whose neurons.
        kinds: Which ablations.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        Over (kind, neuron, skill): `accuracy`, `log_prob` (nats), and the standard errors over sequences of their
        drops, `accuracy_error` and `log_prob_error`. The same with all neurons of the layer removed, `layer_...`, over
        (kind, skill). `clean_accuracy` and `clean_log_prob` over skill. `measurable` over (kind, skill, metric):
        whether the layer carries the skill, see `neurons.carried`.

    Raises:
        InputError: The model has no such neurons or is too small for the batch, the reference has another length,
            another kind, a skill is tested nowhere, or the logits hold NaN.
    """
    n = mlp_block(model, layer).mlp.W_out.shape[0]
    groups = {str(neuron): [neuron] for neuron in range(n)} | {"layer": list(range(n))}
    result = group_effects(
        model, batch, groups, skills=skills, reference=reference, layer=layer, kinds=kinds, seed=seed
    ).drop_vars("size")
    by_group = [name for name in result if "group" in result[name].dims]
    whole = result[by_group].sel(group="layer", drop=True)
    single = result.isel(group=slice(0, -1)).rename(group="neuron").assign_coords(neuron=range(n))
    return single.assign({f"layer_{name}": values for name, values in whole.items()})


def group_effects(
    model: HookedModel,
    batch: Batch,
    groups: Mapping[str, Sequence[int]],
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    kinds: Sequence[Removal] = REPLACEMENTS,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one group of neurons of a layer removed at a time.

    Args:
        model: As for `neuron_effects`, like the arguments that are not named here.
        batch: Sequences that test the skills.
        groups: Name to neurons; a group may be empty, and groups may overlap.
        skills: For each skill the positions whose answer it alone gives.
        reference: Sequences that means and resampled activations come from.
        layer: Whose neurons.
        kinds: Which ablations.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        As `neuron_effects` without `layer_...`, with dimension `group` in place of `neuron`, and `size` over group.

    Raises:
        InputError: As `neuron_effects`; or no group is given, or one names a neuron that does not exist.
    """
    if not groups:
        raise InputError("groups must name at least one group of neurons; got none")
    if not kinds:
        raise InputError(f"kinds must name at least one of: {', '.join(REPLACEMENTS)}; got none")
    n = mlp_block(model, layer).mlp.W_out.shape[0]
    for neuron in {neuron for group in groups.values() for neuron in group}:
        in_range("a neuron", neuron, 0, n - 1)
    ends = [torch.arange(0), torch.arange(n)]
    sets = [torch.tensor(sorted(set(group)), dtype=torch.long) for group in groups.values()]
    cells: list[Cells] = []
    carried = []
    for kind in kinds:
        on = bench(model, batch, skills=skills, reference=reference, layer=layer, kind=kind, seed=seed)
        found = without(on, [*sets, *ends])
        cells.append(found)
        carried.append(measurable({name: values[-2:] for name, values in found.items()}, on.places))
    measured = {name: torch.stack([cell[name] for cell in cells]).cpu().numpy() for name in cells[0]}
    dims = ("kind", "group", "skill")
    clean = {f"clean_{name}": ("skill", measured[name][0, -2]) for name in ("accuracy", "log_prob")}
    return xr.Dataset(
        {
            **{name: (dims, values[:, :-2]) for name, values in measured.items()},
            **clean,
            "measurable": (("kind", "skill", "metric"), torch.stack(carried).cpu().numpy()),
            "size": ("group", [len(part) for part in sets]),
        },
        coords={"kind": list(kinds), "group": list(groups), "skill": list(skills), "metric": list(METRICS)},
        attrs={
            "log_prob_unit": "nats",
            "layer": layer,
            "n": len(batch),
            "n_reference": len(reference),
            "weights": "unprocessed",
            **CRITERION,
        },
    )
