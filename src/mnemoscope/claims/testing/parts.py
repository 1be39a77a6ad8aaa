"""Parts of a model by the names that a claim gives them, and the prompts by which they are found and measured.

Prompts are unseen ones, drawn from the seed's own streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mnemoscope.analyses.ablation import components
from mnemoscope.analyses.roles import choose_roles, role_prompts
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills

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
def prompts(task: Task, seed: int, n: int = N_PROMPTS) -> Prompts:
    """The prompts of a seed, kept for the next assertion."""
    selection, test, reference = role_prompts(task, n=n, split="test", seed=seed)
    return Prompts(
        selection=selection,
        test=test,
        reference=reference,
        selection_skills=task.skills(selection),
        skills=task.skills(test),
    )


def find(parts: Component | Sequence[Component], model: HookedModel, at: Prompts) -> dict[str, Site]:
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
            named = choose_roles(model, at.selection, skills=skills, reference=at.reference, skill=skill)
            by_role = {role: component for component, role in named.items()}
            one_of("a part of the model", name, by_role)
            name = by_role[name]
        if name in found:
            raise InputError(f"{part} is {name}, which is named twice; name every part once")
        found[name] = sites[name]
    return found


def described(parts: Component | Sequence[Component], found: Mapping[str, Site]) -> str:
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
