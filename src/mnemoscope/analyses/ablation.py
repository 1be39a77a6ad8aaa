"""Which skill is lost when a head or an MLP is removed.

Every head and every MLP is replaced, one at a time, by zeros, by its mean over a reference set, or by its
activation in another sequence of that set. For each skill: accuracy and mean log-probability of the answer (nats),
clean and ablated.

It shows that a component is needed for a skill on this distribution, given the rest of the model as it is. It does
not show what the component computes, and a component that another one can stand in for looks unneeded.
"""

from collections.abc import Mapping, Sequence

import xarray as xr
from torch import Tensor

from mnemoscope.analyses.predictions import check_fits, normalised
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import REPLACEMENTS, Ablation, Replacement
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.ablation import reference_activations, run_ablated, sites


def ablate(
    model: HookedModel,
    task: Task,
    batch: Batch,
    *,
    reference: Batch,
    kinds: Sequence[Replacement] = REPLACEMENTS,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one component removed at a time.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        task: Knows the skills.
        batch: Sequences that test the skills.
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        kinds: Which ablations.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        `accuracy` and `log_prob` over (kind, component, skill), `clean_accuracy` and `clean_log_prob` over skill;
        NaN for a skill that no sequence of the batch tests.

    Raises:
        InputError: The model is too small for the task, or the reference has another length.
    """
    check_fits(model, task, batch)
    if reference.inputs.shape[1] != batch.inputs.shape[1]:
        lengths = f"{reference.inputs.shape[1]} and {batch.inputs.shape[1]} tokens"
        raise InputError(f"reference and batch must be of one length, since positions are compared; got {lengths}")
    components = sites(model)
    skills = task.skills(batch)
    activations = reference_activations(model, reference.inputs, components)
    stream = generator(seed, "resample", device=batch.inputs.device)

    def measured(ablations: Sequence[Ablation]) -> dict[str, list[float]]:
        logits = run_ablated(model, batch.inputs, ablations, activations, stream)
        return _by_skill(normalised(logits, task), batch, skills)

    clean = measured([])
    ablated = [[measured([Ablation(site=site, kind=kind)]) for site in components] for kind in kinds]
    names = ("accuracy", "log_prob")
    dims = ("kind", "component", "skill")
    return xr.Dataset(
        {
            **{name: (dims, [[cell[name] for cell in row] for row in ablated]) for name in names},
            **{f"clean_{name}": ("skill", clean[name]) for name in names},
        },
        coords={"kind": list(kinds), "component": [str(site) for site in components], "skill": list(skills)},
        attrs={
            "log_prob_unit": "nats",
            "n_reference": len(reference),
            "reference": repr(task),
            "weights": "unprocessed",
        },
    )


def _by_skill(log_probs: Tensor, batch: Batch, skills: Mapping[str, Tensor]) -> dict[str, list[float]]:
    correct = metrics.correct(log_probs, batch.targets).double()
    log_prob = metrics.at_target(log_probs, batch.targets)
    return {
        name: [float(values[mask].mean()) for mask in skills.values()]
        for name, values in (("accuracy", correct), ("log_prob", log_prob))
    }


def split_halves(batch: Batch) -> tuple[Batch, Batch]:
    """Every other sequence for choosing heads, the rest for testing what was chosen."""
    return batch.select(slice(0, None, 2)), batch.select(slice(1, None, 2))


def roles(
    model: HookedModel, task: Task, selection: Batch, *, reference: Batch, skill: str | None = None
) -> dict[str, str]:
    """Names for the components that mean the same thing in every seed.

    The head whose mean ablation costs most log-probability on `skill` is the `<skill> head`; the others are `other
    head` (numbered from the most to the least needed where there are several); a single head is `the head`. MLPs
    keep their names.

    Args:
        model: Any hooked model.
        task: Knows the skills.
        selection: Half of the prompts; test on the other half (`split_halves`).
        reference: For the means.
        skill: By which skill to choose; none: the first that the task names. Choose one that needs one head only:
            where two heads are needed for a skill, which of them costs more is an accident.

    Returns:
        Component (`L0H1`) to role: heads from the most to the least needed, then MLPs.

    Raises:
        InputError: The task has no such skill.
    """
    skill = next(iter(task.skills(selection))) if skill is None else skill
    one_of("skill", skill, task.skills(selection))
    result = ablate(model, task, selection, reference=reference, kinds=("mean",))
    remaining = result.log_prob.sel(kind="mean", skill=skill)
    heads = [name for name in remaining.component.values.tolist() if "H" in name]
    ordered = sorted(heads, key=lambda name: float(remaining.sel(component=name)))
    if len(ordered) == 1:
        named = {ordered[0]: "the head"}
    elif len(ordered) == 2:
        named = {ordered[0]: f"{skill} head", ordered[1]: "other head"}
    else:
        named = {name: f"other head {i}" if i else f"{skill} head" for i, name in enumerate(ordered)}
    return named | {name: name for name in remaining.component.values.tolist() if name not in named}


def ablate_by_role(
    model: HookedModel, task: Task, *, skill: str | None = None, n: int = 2048, split: str = "test", seed: int = 0
) -> xr.Dataset:
    """`ablate` with roles chosen on one half of the prompts and everything measured on the other.

    Args:
        model: Any hooked model.
        task: With a split chosen.
        skill: As in `roles`.
        n: Sequences of each subgroup, and of the reference set.
        split: Which mappings.
        seed: Prompts and reference set come from this seed's streams.

    Returns:
        As `ablate`, with dimension `role` in place of `component`, which becomes a coordinate along it; `n` prompts
        a skill in attrs.

    Raises:
        InputError: The task has no such skill, or the model is too small for it.
    """
    batch = task.monitor(n, split=split, generator=generator(seed, "prompts", split))
    reference = task.sample(n, split=split, generator=generator(seed, "reference", split))
    selection, test = split_halves(batch)
    named = roles(model, task, selection, reference=reference, skill=skill)
    result = ablate(model, task, test, reference=reference, seed=seed)
    result = result.sel(component=list(named)).assign_coords(role=("component", list(named.values())))
    return result.swap_dims(component="role").assign_attrs(split=split, n=len(test) // len(task.skills(test)))


def role_order(by_head: xr.Dataset, by_role: xr.Dataset) -> xr.Dataset:
    """A result over (layer, head) rearranged to the roles that `ablate_by_role` found in the same model."""
    sites = [str(name) for name in by_role.component.values]
    chosen = [(role, site) for role, site in zip(by_role.role.values, sites, strict=True) if "H" in site]
    places = [tuple(int(n) for n in site[1:].split("H")) for _, site in chosen]
    rows = [by_head.sel(layer=layer, head=head, drop=True) for layer, head in places]
    return xr.concat(rows, xr.DataArray([str(role) for role, _ in chosen], dims="role", name="role"))
