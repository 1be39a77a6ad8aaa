"""Names for heads that mean the same thing in every seed, by what removing them costs.

Roles are chosen on one half of the prompts and everything is measured on the other: a head that was chosen for its
effect has a flattering effect on the prompts that chose it. A role says what a head is needed for, not how it works; in
a model that has not learned a skill some head still gets its name.
"""

from collections.abc import Callable, Mapping, Sequence

import xarray as xr

from mnemoscope.analyses.ablation.removal import REPLACEMENTS, Removal, ablate
from mnemoscope.analyses.ablation.targets import Targets, by_role, heads_and_mlps
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import Skills, halves

Choose = Callable[[HookedModel, Mapping[str, str], int], Targets]


def components_by_role(model: HookedModel, named: Mapping[str, str], n_pos: int) -> Targets:
    """Heads by role, then MLPs."""
    return by_role(heads_and_mlps(model), named)


def split_halves(batch: Batch) -> tuple[Batch, Batch]:
    """Every other sequence for choosing heads, the rest for testing the choice."""
    (first, _), (second, _) = halves(batch)
    return first, second


def role_prompts(task: Task, *, n: int, split: str, seed: int) -> tuple[Batch, Batch, Batch]:
    """Prompts to choose roles by, prompts to test on, and a reference set, from the streams `prompts` and `reference`.

    Both halves together hold `n` sequences of each subgroup; so does the reference set.
    """
    batch = task.monitor(n, split=split, generator=generator(seed, "prompts", split))
    reference = task.sample(n, split=split, generator=generator(seed, "reference", split))
    return (*split_halves(batch), reference)


def choose_roles(
    model: HookedModel, selection: Batch, *, skills: Skills, reference: Batch, skill: str | None = None
) -> dict[str, str]:
    """Names for the components that mean the same thing in every seed.

    The head whose mean ablation costs most log-probability on `skill` (for vectors, raises its loss most) is the
    `<skill> head`. The others are `other head`, numbered from the most to the least needed where there are several. A
    single head is `the head`. MLPs keep their names.

    Measure `skills` on `selection`, one half of the prompts (`split_halves`), and test on the other half. Means come
    from `reference`. Choose by a `skill` that needs one head only (none: the first): where two heads are needed for a
    skill, which of them costs more is an accident. Raises InputError where there is no such skill.

    Returns component (`L0H1`) to role: heads from the most to the least needed, then MLPs.
    """
    result = ablate(model, selection, skills=skills, reference=reference, kinds=("mean",)).sel(kind="mean")
    skill = result.skill.values[0] if skill is None else skill
    one_of("skill", skill, result.skill.values.tolist())
    remaining = (-result.loss if selection.has_vectors else result.log_prob).sel(skill=skill)
    heads = [name for name in remaining.component.values.tolist() if "H" in name]
    ordered = sorted(heads, key=lambda name: float(remaining.sel(component=name)))
    others = ["other head"] if len(ordered) == 2 else [f"other head {i}" for i in range(1, len(ordered))]
    named = dict(zip(ordered, [f"{skill} head" if others else "the head", *others], strict=False))
    return named | {name: name for name in remaining.component.values.tolist() if name not in named}


def ablate_by_role(
    model: HookedModel,
    task: Task,
    *,
    choose: Choose = components_by_role,
    kinds: Sequence[Removal] = REPLACEMENTS,
    within: str | None = None,
    skill: str | None = None,
    n: int = 2048,
    split: str = "test",
    seed: int = 0,
) -> xr.Dataset:
    """`ablate` with roles chosen on one half of the prompts and everything measured on the other.

    `choose` gives from the model the sites to remove, the roles and the length of the sequences; by default heads and
    MLPs. Roles are chosen without `within`, otherwise as in `ablate`; `skill` is as in `choose_roles`. `n` sequences of
    each subgroup of the `split`, and as many for the reference set, come from the seed's streams.

    Returns:
        As `ablate`, with dimension `role` in place of `component`; for heads and MLPs their numbers are a coordinate
        `component` along it. `n` prompts per skill in attrs.

    Raises:
        InputError: The task has no such skill, or the model is too small for it.
    """
    selection, test, reference = role_prompts(task, n=n, split=split, seed=seed)
    named = choose_roles(model, selection, skills=task.skills(selection), reference=reference, skill=skill)
    targets = choose(model, named, test.inputs.shape[1])
    skills = task.skills(test)
    result = ablate(
        model, test, skills=skills, reference=reference, targets=targets, kinds=kinds, within=within, seed=seed
    )
    result = result.rename(component="role").assign_attrs(split=split, n=len(test) // max(len(skills), 1))
    if len(set(named.values()) & set(targets)) < len(targets):
        return result
    component = {role: name for name, role in named.items()}
    return result.assign_coords(component=("role", [component[role] for role in targets]))
