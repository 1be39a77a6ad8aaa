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
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

import xarray as xr

from mnemoscope.analyses.ablation import Removal, ablate, components
from mnemoscope.analyses.attention import attention_by_mechanism
from mnemoscope.claims.testing.effect import Effect, subject_or_current, submit
from mnemoscope.claims.testing.parts import N_PROMPTS, Component, Prompts, described, find, prompts
from mnemoscope.core import positions
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.site import Site
from mnemoscope.models.subjects import Subject

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
    kind: Removal = "mean",
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
    what, cost = _cost(parts, for_, kind, within, subject_or_current(subject), n)
    submit(Effect(what=what, value=cost, margin=at_least, direction="above", unit=UNIT))


def assert_not_necessary(
    parts: Component | Sequence[Component],
    *,
    for_: str,
    at_most: float = COST,
    kind: Removal = "mean",
    within: str | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that removing the parts together costs a skill less accuracy than `at_most`.

    Args and errors are those of `assert_necessary`.
    """
    __tracebackhide__ = True
    what, cost = _cost(parts, for_, kind, within, subject_or_current(subject), n)
    submit(Effect(what=what, value=cost, margin=at_most, direction="below", unit=UNIT))


def assert_sufficient(
    parts: Component | Sequence[Component],
    *,
    for_: str,
    at_least: float = SUFFICES,
    kind: Removal = "mean",
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
    kept = find(parts, on.model, at)
    others = {str(site): site for site in components(on.model) if str(site) not in kept}
    if not others:
        raise InputError(f"{described(parts, kept)} is the whole model; name fewer parts")
    table = _ablated(on, at, {"others": tuple(others.values())}, kind, within)
    left = float(table.accuracy.sel(skill=for_).squeeze())
    what = f"accuracy in {for_} with {described(parts, kept)} alone"
    submit(Effect(what=what, value=left, margin=at_least, direction="above", unit=UNIT))


def assert_dissociated(
    first: str,
    second: str,
    *,
    margin: float = COST,
    kind: Removal = "mean",
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
    chosen = _ablated(on, at, heads, kind, within, choosing=True)
    pair = max(permutations(heads, 2), key=lambda pair: _dissociation(chosen, pair, (first, second), margin))
    tested = _ablated(on, at, {name: heads[name] for name in pair}, kind, within)
    effect = _dissociation(tested, pair, (first, second), margin)
    what = f"the double dissociation of {first} ({pair[0]}) and {second} ({pair[1]})"
    submit(Effect(what=what, value=effect, margin=0.0, direction="above", unit=UNIT))


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
    found = find(part, on.model, at)
    [site] = found.values()
    if site.head is None:
        raise InputError(f"an attention pattern is that of a head; got {part}")
    n_pos = at.test.inputs.shape[1]
    if queries is None:
        queries = at.test.scored.any(0).nonzero()[:, 0].tolist()
    chosen = [positions.number(query, at.test.positions, n_pos, argument="a query") for query in queries]
    table = attention_by_mechanism(on.model, at.test, [mechanism], measures=["share"]).isel(subgroup=0, mechanism=0)
    table = table.isel(query=chosen)
    said = table.said
    if not float(said.sum()) > 0:
        raise InputError(f"mechanism {mechanism.name} says nothing about queries {list(queries)}; name others")
    share = table.share.sel(layer=site.layer, head=site.head).fillna(0)
    value = float((share * said).sum() / said.sum())
    what = f"the share of attention of {described(part, found)} on {mechanism.name}"
    submit(Effect(what=what, value=value, margin=at_least, direction="above", unit="share of attention"))


def _cost(
    parts: Component | Sequence[Component], skill: str, kind: Removal, within: str | None, on: Subject, n: int
) -> tuple[str, float]:
    """The cost of removing parts for a skill, in words and as a number."""
    at = _prompts(on, n, skill)
    found = find(parts, on.model, at)
    table = _ablated(on, at, {"parts": tuple(found.values())}, kind, within)
    what = f"what {skill} loses without {described(parts, found)}"
    return what, float(_lost(table).sel(skill=skill).squeeze())


def _dissociation(table: xr.Dataset, heads: tuple[str, str], skills: tuple[str, str], margin: float) -> float:
    """The smallest distance of the four costs from the margin, on the side of it where they should lie."""
    lost = _lost(table)

    def cost(i: int, j: int) -> float:
        return float(lost.sel(component=heads[i], skill=skills[j]).squeeze())

    return min(cost(0, 0) - margin, margin - cost(0, 1), cost(1, 1) - margin, margin - cost(1, 0))


def _lost(table: xr.Dataset) -> xr.DataArray:
    return table.clean_accuracy - table.accuracy


def _ablated(
    on: Subject,
    at: Prompts,
    targets: Mapping[str, Sequence[Site]],
    kind: Removal,
    within: str | None,
    *,
    choosing: bool = False,
) -> xr.Dataset:
    batch, skills = (at.selection, at.selection_skills) if choosing else (at.test, at.skills)
    return ablate(
        on.model,
        batch,
        skills=skills,
        reference=at.reference,
        targets=targets,
        kinds=(kind,),
        within=within,
        seed=on.seed,
    )


def _prompts(on: Subject, n: int, *skills: str) -> Prompts:
    at = prompts(on.task, on.seed, n)
    for skill in skills:
        one_of("a skill", skill, at.skills)
    return at
