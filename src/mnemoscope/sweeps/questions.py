"""What is asked about a claim, and what has to be measured for it.

Replicates of a claim are the seeds of which every one of its configurations has a finished run. Beside the claim itself
stand its rivals and its sensitivity table, which asks the same of other configurations, or measures otherwise, one
factor at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mnemoscope.core.presets import Configuration
from mnemoscope.core.specification import RunSpec
from mnemoscope.judging.claim import MIN_REPLICATES, Claim
from mnemoscope.models.run import Run, by_label
from mnemoscope.sweeps.measuring import Call, Factors, OfDraw, OfPlant, OfRun, Work

MANY_STEPS = 12
"""More checkpoints than this are not all measured."""

Bench = Mapping[Configuration, Mapping[int, Run]]
"""Finished runs by configuration and seed."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A claim under one choice of factors: the claim itself, a rival, or a cell of the sensitivity table."""

    claim: Claim
    factors: Factors = ()
    factor: str = ""
    value: str = ""

    @property
    def call(self) -> Call:
        """How its effects are measured."""
        assert self.claim.measure is not None
        return Call(self.claim.measure, self.factors)


def under(claim: Claim, field: str, value: Any) -> Claim:
    """The claim about other configurations; rivals go with it, and what varies the same factor goes."""
    units = {name: unit.changed(field, value) for name, unit in claim.units.items()}
    factors = {name: values for name, values in claim.factors.items() if name != field}
    return replace(claim, units=units, factors=factors, rivals=tuple(under(r, field, value) for r in claim.rivals))


def asked_of(claim: Claim, recipe: str) -> Claim | None:
    """The claim about models of a recipe; None if it means nothing there, as it does not vary the recipe itself.

    Under another recipe than its own it stands alone, and no headline hangs on it.
    """
    if all(unit.recipe == recipe for unit in claim.units.values()):
        return claim
    if recipe not in claim.factors.get("recipe", ()):
        return None
    moved = under(claim, "recipe", recipe)
    alone = {"n_replicates": MIN_REPLICATES, "headline": False}
    return replace(moved, rivals=tuple(replace(rival, **alone) for rival in moved.rivals), **alone)


def questions_about(claim: Claim, sensitivity: bool) -> list[Question]:
    """The claim, its rivals, and the cells of all of them."""
    asked = [claim, *claim.rivals]
    cells = [cell for one in asked for cell in _cells(one)] if sensitivity else []
    return [*(Question(claim=one) for one in asked), *cells]


def _cells(claim: Claim) -> list[Question]:
    """The claim with one factor changed at a time; it stands alone, and no headline hangs on it."""
    alone = replace(claim, n_replicates=MIN_REPLICATES, headline=False, rivals=(), factors={})
    return [
        Question(claim=under(alone, factor, value), factor=factor, value=str(value))
        if factor == "recipe" or "." in factor
        else Question(claim=alone, factors=((factor, value),), factor=factor, value=str(value))
        for factor, values in claim.factors.items()
        for value in values
    ]


def find_bench(runs: Sequence[Run], claims: Sequence[Claim]) -> Bench:
    """The finished runs that claims are about."""
    by_label([run for run in runs if run.finished])  # refuses a seed that stands there twice
    found: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        if run.finished:
            found.setdefault(_alike(run.spec), {})[run.spec.seed] = run
    units = {unit for claim in claims for unit in claim.units.values()}
    return {unit: found.get(_alike(unit.spec(0)), {}) for unit in units}


def _alike(spec: RunSpec) -> tuple:
    """What runs of one configuration have in common; when checkpoints are kept is not part of it."""
    task, model, recipe = spec.configuration
    return task, model, replace(recipe, checkpoint_steps=None, save_every=1)


def seeds_of(claim: Claim, bench: Bench) -> list[int]:
    """Replicates: seeds of which every unit has a run; for a claim about no model, as many draws as it needs."""
    if not claim.units:
        return list(range(claim.n_replicates))
    return sorted(set.intersection(*(set(bench[unit]) for unit in claim.units.values())))


def developing(claim: Claim, bench: Bench) -> tuple[int, tuple[int, ...]] | None:
    """The first seed whose runs have checkpoints along training, and steps that all of them have: every other one if
    there are many.
    """
    for seed in seeds_of(claim, bench) if claim.units and claim.develops else ():
        steps = set.intersection(*(set(bench[unit][seed].steps) for unit in claim.units.values()))
        if len(steps) > 2:
            every = 2 if len(steps) > MANY_STEPS else 1
            return seed, tuple(sorted(sorted(steps, reverse=True)[::every]))
    return None


def plan(claim: Claim, questions: Sequence[Question], bench: Bench, *, emergence: bool) -> list[Work]:
    """All that is measured for one claim."""
    work: list[Work] = []
    for question in questions:
        asked, calls = question.claim, (question.call,)
        for seed in seeds_of(asked, bench):
            if asked.units:
                work += [OfRun(bench[unit][seed], calls) for unit in asked.units.values()]
            else:
                work.append(OfDraw(asked.id, seed, calls))
        for control in asked.controls:
            if control.plant is not None:
                work += [OfPlant(control.plant, case, asked.compare, calls) for case in range(control.n)]
    if emergence and (along := developing(claim, bench)):
        seed, steps = along
        calls = tuple(replace(questions[0].call, step=step) for step in steps)
        work += [OfRun(bench[unit][seed], calls) for unit in claim.units.values()]
    return work
