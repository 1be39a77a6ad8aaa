"""Assertions on what a skill needs, and on where a head attends.

    cost = accuracy on the skill - accuracy with the parts removed,

on unseen prompts where the skill alone gives the answer. To remove is to replace by the mean over a reference set (or
by another ablation of `analyses.ablation`). It shows what is needed given the rest of the model as it is. It does not
show what a part computes, and a part that another one can stand in for looks unneeded. A model that has not learned a
skill has nothing to lose: give the claim a gate.

    share = attention on the keys that a mechanism names,

averaged over unseen prompts and over the queries about which the mechanism says something. It shows where a head
attends and not what for: attention to a key need not use it. Attention spread evenly over all keys has a share too
(`even_share` of `attention_by_mechanism`); set the margin well above it.

Prompts are drawn from the seed's own streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import xarray as xr

from mnemoscope.analyses.ablation import RemovalKind, ablate, components
from mnemoscope.analyses.attention_shares import attention_by_mechanism
from mnemoscope.analyses.roles import choose_roles, role_prompts
from mnemoscope.claims.testing.cases import record_effect, subject_or_current
from mnemoscope.core import positions
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills
from mnemoscope.models.subjects import Subject

N_PROMPTS = 2048
"""Sequences of each subgroup, half of them for choosing and half for measuring."""
_ROLE = " head"


@dataclass(frozen=True, kw_only=True)
class Component:
    """A head or an MLP of any model of a kind.

    `name` is a role (`other head`), a head (`L0H1`) or an MLP (`L0 MLP`). Roles are given by the skill `by`; None: the
    one that the name begins with, else the task's first.
    """

    name: str
    by: str | None = None

    def __str__(self) -> str:
        return self.name


def head(name: str, *, by: str | None = None) -> Component:
    """A head by role, or by its place.

    A role means the same thing in every seed, a place does not. The head whose mean ablation costs most
    log-probability on a skill is the `<skill> head`; the others are `other head`, or `other head 1`, `other head 2`,
    ... from the more to the less needed. The only head of a model is `the head`. Roles are chosen on other prompts
    than those that the assertions measure on. The skill `by` is by default the one in the name, else the task's first.
    """
    return Component(name=name, by=by)


def mlp(layer: int = 0) -> Component:
    """The MLP of a layer."""
    return Component(name=f"L{layer} MLP")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompts:
    """Sequences of one seed: to choose roles by, to measure on, and to take means and draw activations from."""

    selection: Batch
    test: Batch
    reference: Batch
    selection_skills: Skills
    skills: Skills


@lru_cache(maxsize=4)
def _all_prompts(task: Task, seed: int, n: int) -> Prompts:
    selection, test, reference = role_prompts(task, n=n, split="test", seed=seed)
    return Prompts(
        selection=selection,
        test=test,
        reference=reference,
        selection_skills=task.skills(selection),
        skills=task.skills(test),
    )


def _prompts(on: Subject, n: int, *skills: str) -> Prompts:
    """The prompts of a seed, the same for its next assertion; refuses a skill that the task does not have."""
    at = _all_prompts(on.task, on.seed, n)
    for skill in skills:
        one_of("a skill", skill, at.skills)
    return at


def find_sites(parts: Component | Sequence[Component], model: HookedModel, at: Prompts) -> dict[str, Site]:
    """The sites of some parts in one model by component (`L0H1`, `L0 MLP`), with roles chosen on the selection.

    Raises InputError where no part is given, one is given twice, or the model has none of that name; the message says
    which it has.
    """
    parts = [parts] if isinstance(parts, Component) else parts
    if not parts:
        raise InputError("parts must name at least one: head('other head'), mlp(); got none")
    sites = {str(site): site for site in components(model)}
    found: dict[str, Site] = {}
    for part in parts:
        name = part.name
        if name not in sites:
            skills, skill = at.selection_skills, _skill(part, at.selection_skills)
            roles = choose_roles(model, at.selection, skills=skills, reference=at.reference, skill=skill)
            by_role = {role: component for component, role in roles.items()}
            one_of("a part of the model", name, by_role)
            name = by_role[name]
        if name in found:
            raise InputError(f"{part} is {name}, which is named twice; name every part once")
        found[name] = sites[name]
    return found


def describe_parts(parts: Component | Sequence[Component], found: Mapping[str, Site]) -> str:
    """The parts by the names in the test and, where these differ, by their place."""
    asked = [str(part) for part in ([parts] if isinstance(parts, Component) else parts)]
    words = [name if name == place else f"{name} ({place})" for name, place in zip(asked, found, strict=True)]
    return " and ".join(words)


def _skill(part: Component, skills: Skills) -> str | None:
    if part.by is not None:
        one_of(f"the skill by which {part} is chosen", part.by, skills)
        return part.by
    named = part.name.removesuffix(_ROLE)
    return named if named in skills else None


COST = 0.25
"""Accuracy that a needed part costs, unless said otherwise."""
SUFFICES = 0.9
"""Accuracy that parts keep which are enough, unless said otherwise."""
SHARE = 0.5
"""Share of attention, unless said otherwise."""
UNIT = "accuracy"


def assert_necessary(
    parts: Component | Sequence[Component],
    *,
    for_: str,
    at_least: float = COST,
    kind: RemovalKind = "mean",
    within: str | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that removing the parts together costs a skill more accuracy than `at_least`.

    `parts` are `head("other head")`, `mlp()`, or several; `for_` is the skill. A cost of exactly `at_least` is not
    enough. `kind` and `within` are as in `ablate`. Without a `subject` the model on trial is taken. Half of the `n`
    sequences of each subgroup are measured on. Raises InputError where there is no such part or skill, or no model;
    AssertionError where no model is on trial, and it is not so.
    """
    __tracebackhide__ = True
    what, cost = _removal_cost(parts, for_, kind, within, subject_or_current(subject), n)
    record_effect(what, cost, at_least, "above", UNIT)


def assert_not_necessary(
    parts: Component | Sequence[Component],
    *,
    for_: str,
    at_most: float = COST,
    kind: RemovalKind = "mean",
    within: str | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that removing the parts together costs a skill less accuracy than `at_most`.

    Args and errors are those of `assert_necessary`.
    """
    __tracebackhide__ = True
    what, cost = _removal_cost(parts, for_, kind, within, subject_or_current(subject), n)
    record_effect(what, cost, at_most, "below", UNIT)


def assert_sufficient(
    parts: Component | Sequence[Component],
    *,
    for_: str,
    at_least: float = SUFFICES,
    kind: RemovalKind = "mean",
    within: str | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that a skill keeps an accuracy above `at_least` with all heads and MLPs but these removed together.

    Args and errors are those of `assert_necessary`; `at_least` is an accuracy here.
    """
    __tracebackhide__ = True
    on = subject_or_current(subject)
    at = _prompts(on, n, for_)
    kept = find_sites(parts, on.model, at)
    others = {str(site): site for site in components(on.model) if str(site) not in kept}
    if not others:
        raise InputError(f"{describe_parts(parts, kept)} is the whole model; name fewer parts")
    table = _ablate_others(on, at, {"others": tuple(others.values())}, kind, within)
    left = float(table.accuracy.sel(skill=for_).squeeze())
    what = f"accuracy in {for_} with {describe_parts(parts, kept)} alone"
    record_effect(what, left, at_least, "above", UNIT)


def assert_dissociated(
    first: str,
    second: str,
    *,
    margin: float = COST,
    kind: RemovalKind = "mean",
    within: str | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim a double dissociation: one head is needed for the first skill only, another for the second only.

    The effect is the smallest distance of the four costs to the margin, on the right side of it. The two heads are
    chosen on other prompts than those that it is measured on.

    Args are those of `assert_necessary`, and `first` and `second`: skills; `margin`: a cost above it is one, a cost
    below it none. Errors are the same; a model with one head only is refused too.
    """
    __tracebackhide__ = True
    on = subject_or_current(subject)
    if first == second:
        raise InputError(f"a dissociation is one of two skills; got {first!r} twice")
    at = _prompts(on, n, first, second)
    heads = {str(site): (site,) for site in components(on.model) if site.kind == "z"}
    if len(heads) < 2:
        raise InputError("a dissociation needs two heads; the model has one")
    chosen = _ablate_others(on, at, heads, kind, within, choosing=True)
    pair = max(permutations(heads, 2), key=lambda pair: _dissociation(chosen, pair, (first, second), margin))
    tested = _ablate_others(on, at, {name: heads[name] for name in pair}, kind, within)
    effect = _dissociation(tested, pair, (first, second), margin)
    what = f"the double dissociation of {first} ({pair[0]}) and {second} ({pair[1]})"
    record_effect(what, effect, 0.0, "above", UNIT)


def assert_pattern(
    part: Component,
    mechanism: Mechanism,
    *,
    at_least: float = SHARE,
    queries: Sequence[int | str] | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that a head spends more than `at_least` of its attention on the keys that a mechanism names.

    `mechanism` is from `core.patterns`, or one's own. A share of exactly `at_least` is not enough. `queries` are
    positions that attend, by number or by name; none: those that have an answer. The rest is as for `assert_necessary`;
    InputError also where the mechanism says nothing about these queries.
    """
    __tracebackhide__ = True
    on = subject_or_current(subject)
    at = _prompts(on, n)
    found = find_sites(part, on.model, at)
    [site] = found.values()
    if site.head is None:
        raise InputError(f"an attention pattern is that of a head; got {part}")
    n_pos = at.test.inputs.shape[1]
    if queries is None:
        queries = at.test.scored.any(0).nonzero()[:, 0].tolist()
    chosen = [positions.find_position(query, at.test.positions, n_pos, argument="a query") for query in queries]
    table = attention_by_mechanism(on.model, at.test, [mechanism], measures=["share"]).isel(subgroup=0, mechanism=0)
    table = table.isel(query=chosen)
    said = table.said
    if not float(said.sum()) > 0:
        raise InputError(f"mechanism {mechanism.name} says nothing about queries {list(queries)}; name others")
    share = table.share.sel(layer=site.layer, head=site.head).fillna(0)
    value = float((share * said).sum() / said.sum())
    what = f"the share of attention of {describe_parts(part, found)} on {mechanism.name}"
    record_effect(what, value, at_least, "above", "share of attention")


def _removal_cost(
    parts: Component | Sequence[Component], skill: str, kind: RemovalKind, within: str | None, on: Subject, n: int
) -> tuple[str, float]:
    """The cost of removing parts for a skill, in words and as a number."""
    at = _prompts(on, n, skill)
    found = find_sites(parts, on.model, at)
    table = _ablate_others(on, at, {"parts": tuple(found.values())}, kind, within)
    what = f"what {skill} loses without {describe_parts(parts, found)}"
    return what, float((table.clean_accuracy - table.accuracy).sel(skill=skill).squeeze())


def _dissociation(table: xr.Dataset, heads: tuple[str, str], skills: tuple[str, str], margin: float) -> float:
    """The smallest distance of the four costs from the margin, on the side of it where they should lie."""
    lost = table.clean_accuracy - table.accuracy

    def cost(i: int, j: int) -> float:
        return float(lost.sel(component=heads[i], skill=skills[j]).squeeze())

    return min(cost(0, 0) - margin, margin - cost(0, 1), cost(1, 1) - margin, margin - cost(1, 0))


def _ablate_others(
    on: Subject,
    at: Prompts,
    targets: Mapping[str, Sequence[Site]],
    kind: RemovalKind,
    within: str | None,
    *,
    choosing: bool = False,
) -> xr.Dataset:
    batch, skills = (at.selection, at.selection_skills) if choosing else (at.test, at.skills)
    where = {"skills": skills, "reference": at.reference, "within": within, "seed": on.seed}
    return ablate(on.model, batch, targets=targets, kinds=(kind,), **where)
