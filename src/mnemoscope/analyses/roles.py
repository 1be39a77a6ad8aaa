"""Names for heads that mean the same thing in every seed, by what removing them costs, and results arranged by them.

The number of a head means nothing across seeds: a head of one seed is compared with the head of another that has the
same role, never with the one that has the same number. Roles are chosen on one half of the prompts and everything is
measured on the other: a head that was chosen for its effect has a flattering effect on the prompts that chose it.

A role says what a head is needed for, not how it works; in a model that has not learned a skill some head still gets
its name, and is rearranged like any other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import xarray as xr

from mnemoscope.analyses.ablation import REPLACEMENTS, AblationTargets, RemovalKind, ablate, heads_and_mlps
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, random_halves
from mnemoscope.models.run import Run

Result = TypeVar("Result", xr.Dataset, xr.DataArray)
Choose = Callable[[HookedModel, Mapping[str, str], int], AblationTargets]

HEAD = re.compile(r"L\d+H\d+")
"""The name of a head."""


def components_by_role(model: HookedModel, named: Mapping[str, str], n_pos: int) -> AblationTargets:
    """Heads by role, then MLPs."""
    return targets_by_role(heads_and_mlps(model), named)


def split_halves(batch: Batch) -> tuple[Batch, Batch]:
    """Every other sequence for choosing heads, the rest for testing the choice.

    >>> [len(half) for half in ms.analyses.split_halves(batch)]
    [32, 32]
    """
    check_is_batch(batch)
    (first, _), (second, _) = random_halves(batch)
    return first, second


def role_prompts(task: Task, *, n: int, split: str, seed: int) -> tuple[Batch, Batch, Batch]:
    """Prompts to choose roles by, prompts to test on, and a reference set, from the streams `prompts` and `reference`.

    Both halves together hold `n` sequences of each subgroup; so does the reference set.
    """
    batch = task.monitor(n, split=split, generator=generator(seed, "prompts", split))
    reference = task.sample(n, split=split, generator=generator(seed, "reference", split))
    return (*split_halves(batch), reference)


def choose_roles(
    model: ModelLike, selection: Batch, *, skills: Skills, reference: Batch, skill: str | None = None
) -> dict[str, str]:
    """Names for the components that mean the same thing in every seed.

    The head whose mean ablation costs most log-probability on `skill` (for vectors, raises its loss most) is the
    `<skill> head`. The others are `other head`, numbered from the most to the least needed where there are several. A
    single head is `the head`. MLPs keep their names.

    Measure `skills` on `selection`, one half of the prompts (`split_halves`), and test on the other half. Means come
    from `reference`. Choose by a `skill` that needs one head only (none: the first): where two heads are needed for a
    skill, which of them costs more is an accident. Raises InputError where there is no such skill.

    Returns component (`L0H1`) to role: heads from the most to the least needed, then MLPs.

    >>> ms.analyses.choose_roles(model, batch, skills=skills, reference=batch)
    {'L0H0': 'elimination head', 'L0H1': 'other head', 'L0 MLP': 'L0 MLP'}
    """
    model = resolve_model(model, selection=selection, reference=reference)
    result = ablate(model, selection, skills=skills, reference=reference, kinds=("mean",)).sel(kind="mean")
    skill = result.skill.values[0] if skill is None else skill
    one_of("skill", skill, result.skill.values.tolist())
    remaining = (-result.loss if selection.has_vectors else result.log_prob).sel(skill=skill)
    heads = [name for name in remaining.component.values.tolist() if "H" in name]
    ordered = sorted(heads, key=lambda name: float(remaining.sel(component=name)))
    others = ["other head"] if len(ordered) == 2 else [f"other head {i}" for i in range(1, len(ordered))]
    named = dict(zip(ordered, [f"{skill} head" if others else "the head", *others], strict=False))
    return named | {name: name for name in remaining.component.values.tolist() if name not in named}


@check_arguments
def ablate_by_role(
    model: ModelLike,
    task: Task,
    *,
    choose: Choose = components_by_role,
    kinds: Sequence[RemovalKind] = REPLACEMENTS,
    within: str | None = None,
    per_prompt: bool = False,
    skill: str | None = None,
    n: int = 2048,
    split: str = "test",
    seed: int = 0,
) -> xr.Dataset:
    """`ablate` with roles chosen on one half of the prompts and everything measured on the other.

    `choose` gives from the model the sites to remove, the roles and the length of the sequences; by default heads and
    MLPs. Roles are chosen without `within`; `per_prompt` and the rest are as in `ablate`, `skill` as in `choose_roles`.
    `n` sequences of each subgroup of the `split`, and as many for the reference set, come from the seed's streams.

    Returns:
        As `ablate`, with dimension `role` in place of `component`; for heads and MLPs their numbers are a coordinate
        `component` along it. `n` prompts per skill in attrs.

    Raises:
        InputError: The task has no such skill, or the model is too small for it.

    >>> lost = ms.analyses.ablate_by_role(model, task, kinds=["mean"], n=64)
    >>> lost.role.values.tolist()
    ['elimination head', 'other head', 'L0 MLP']
    """
    model = resolve_model(model)
    selection, test, reference = role_prompts(task, n=n, split=split, seed=seed)
    named = choose_roles(model, selection, skills=task.skills(selection), reference=reference, skill=skill)
    targets = choose(model, named, test.inputs.shape[1])
    skills = task.skills(test)
    result = ablate(
        model,
        test,
        skills=skills,
        reference=reference,
        targets=targets,
        kinds=kinds,
        within=within,
        per_prompt=per_prompt,
        seed=seed,
    )
    result = result.rename(component="role").assign_attrs(split=split, n=len(test) // max(len(skills), 1))
    if len(set(named.values()) & set(targets)) < len(targets):
        return result
    component = {role: name for name, role in named.items()}
    return result.assign_coords(component=("role", [component[role] for role in targets]))


def last_roles(run: Run, *, skill: str | None = None, n: int = 2048, split: str = "test") -> dict[str, str]:
    """Roles of a run's components by its last checkpoint, on the selection half of the prompts.

    The `skill` is as in `choose_roles`; `n` sequences of each subgroup of the `split` are drawn, and as many for the
    reference set. The prompts are those that `ablate_by_role` chooses by under the run's seed. Raises InputError where
    there is no checkpoint, or the task has no such skill.

    >>> ms.analyses.last_roles(run, n=64)
    {'L0H0': 'elimination head', 'L0H1': 'other head', 'L0 MLP': 'L0 MLP'}
    """
    task, seed = run.spec.task, run.spec.seed
    selection, _, reference = role_prompts(task, n=n, split=split, seed=seed)
    return choose_roles(run.hooked(), selection, skills=task.skills(selection), reference=reference, skill=skill)


def by_role(result: Result, named: Mapping[str, str]) -> Result:
    """A result over (layer, head), or over `component`, rearranged to roles.

    Dimensions `layer` and `head` become `role`, in the order of `named`; so does `component`. The second component of a
    pair, `other`, is rearranged likewise under its own name. Variables of a dataset that have neither stay as they are.
    The components remain as coordinate `component`.

    `named` maps components (`L0H1`) to roles. Heads that it does not name are left out; other components keep their own
    name, after the named ones, unless it gives them another.

    Raises InputError where the result has no heads or components, or both; a head does not exist; or two components of
    the result have the same role.

    >>> scores = ms.analyses.head_scores(model, batch).score
    >>> ms.analyses.by_role(scores, {"L0H1": "recall head", "L0H0": "other"}).role.values.tolist()
    ['recall head', 'other']
    """
    arrays = result.data_vars.values() if isinstance(result, xr.Dataset) else [result]
    kinds = {_kind(array) for array in arrays} - {""}
    if len(kinds) != 1:
        found = "variables of both kinds; rearrange them one at a time" if kinds else f"dimensions {tuple(result.dims)}"
        raise InputError(f"a result by role needs dimensions (layer, head) or component; got {found}")
    if "role" in result.dims:
        raise InputError("the result has a dimension role already")
    if isinstance(result, xr.DataArray):
        return _array_by_role(result, named)
    variables = {
        name: _array_by_role(array, named) if _kind(array) else array for name, array in result.data_vars.items()
    }
    return xr.Dataset(variables, attrs=result.attrs)


def targets_by_role(targets: Mapping[str, Sequence[Site]], named: Mapping[str, str]) -> AblationTargets:
    """The same sets with heads renamed to their roles, in the order of the roles; other sets come last.

    Each set is one head or part of one, or no head at all. `named` maps components (`L0H1`) to roles.
    """
    rank = {name: place for place, name in enumerate(named)}

    def place(target: str) -> int:
        head = HEAD.match(target)
        return rank[head[0]] if head else len(rank)

    return {rename_heads(target, named): tuple(targets[target]) for target in sorted(targets, key=place)}


def rename_heads(text: str, named: Mapping[str, str]) -> str:
    """A text in which heads have the names of their roles; heads without a role keep theirs.

    >>> ms.analyses.rename_heads("L0H1 → L1H0", {"L0H1": "recall head"})
    'recall head → L1H0'
    """
    return HEAD.sub(lambda head: named.get(head[0], head[0]), text)


def roles_of(result: xr.Dataset) -> dict[str, str]:
    """The component-to-role mapping of a result by role, to bring other results of the same model into its order.

    >>> lost = ms.analyses.ablate_by_role(model, task, kinds=["mean"], n=64)
    >>> ms.analyses.roles_of(lost)
    {'L0H0': 'elimination head', 'L0H1': 'other head', 'L0 MLP': 'L0 MLP'}
    """
    return dict(zip(result.component.values.tolist(), result.role.values.tolist(), strict=True))


def with_roles(patterns: xr.Dataset, named: Mapping[str, str]) -> xr.Dataset:
    """Attention patterns with the names of their heads, for a view.

    `patterns` has `pattern` over (..., layer, head, query, key); `named` maps components (`L0H1`) to roles. The result
    has `called` over (layer, head) too: the role and behind it the head, `copy head (L0H1)`; or the head.

    >>> shown = ms.analyses.with_roles(ms.analyses.named_patterns(model, batch), {"L0H1": "recall head"})
    >>> shown.called.values.tolist()
    [['L0H0', 'recall head (L0H1)']]
    """
    pattern = patterns.pattern
    heads = [[f"L{layer}H{head}" for head in pattern["head"].values] for layer in pattern["layer"].values]
    names = [[f"{named[head]} ({head})" if head in named else head for head in layer] for layer in heads]
    return patterns.assign(called=(("layer", "head"), names))


def _kind(array: xr.DataArray) -> str:
    if "component" in array.dims:
        return "component"
    return "head" if {"layer", "head"} <= set(array.dims) else ""


def _array_by_role(array: xr.DataArray, named: Mapping[str, str]) -> xr.DataArray:
    if _kind(array) == "head":
        array = array.stack(component=("layer", "head"))
        names = [f"L{layer}H{head}" for layer, head in array.component.values]
        array = array.drop_vars(["component", "layer", "head"]).assign_coords(component=names)
    present = [str(name) for name in array.component.values]
    missing = [name for name in named if HEAD.fullmatch(name) and name not in present]
    if missing:
        raise InputError(f"roles are given to {', '.join(missing)}; the result has {', '.join(present)}")
    chosen = [name for name in named if name in present]
    chosen += [name for name in present if name not in named and not HEAD.fullmatch(name)]
    roles = [named.get(name, name) for name in chosen]
    if len(set(roles)) < len(roles):
        raise InputError(f"every component needs a role of its own; got {', '.join(roles)}")
    if "other" in array.dims:
        array = array.sel(other=chosen).assign_coords(other=roles)
    return array.sel(component=chosen).assign_coords(role=("component", roles)).swap_dims(component="role")
