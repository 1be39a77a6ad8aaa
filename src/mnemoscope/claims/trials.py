"""Claims put on trial over runs: questions, what has to be measured for them, evidence, and rulings.

Replicates of a claim are the seeds of which every one of its configurations has a finished run (`admission`); of a
claim about language models its questions to one model, or the models (`questions`). Beside
the claim itself stand its rivals and its sensitivity table, which asks the same of other configurations, or measures
otherwise, one factor at a time. The headline claims of a system are corrected for each other also where only some of
them are on trial.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.claims.admission import Bench, check_identity, find_bench
from mnemoscope.claims.behaviour import values_in
from mnemoscope.claims.claim import CLAIMS, GATE, MIN_REPLICATES, SOURCE, Claim, Measured, of_training
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge, judge_family
from mnemoscope.claims.measuring import (
    Call,
    Factors,
    OfDraw,
    OfPlant,
    OfRun,
    Results,
    Work,
    check_named,
    measure_all,
    merged,
    modules_of,
)
from mnemoscope.claims.questions import as_replicates, language_models, of_model
from mnemoscope.claims.questions import asked_of as asked_of_models
from mnemoscope.claims.registered import registered_versions, standing, superseded
from mnemoscope.claims.registration import functions_of
from mnemoscope.claims.verdict import Cell, Ruling
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.models.run import Run
from mnemoscope.run.executor import n_processes

MANY_STEPS = 12
"""More checkpoints than this are not all measured."""

Progress = Mapping[str, tuple[int, int]]
"""The pieces of work that are done for each claim, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A claim under one choice of factors: the claim itself, a rival, or a cell of the sensitivity table."""

    claim: Claim
    factors: Factors = ()
    factor: str = ""
    value: str = ""
    version: int | None = None
    """The version of the measure, if the claim is registered with it."""

    @property
    def call(self) -> Call:
        """The call that measures its effects."""
        assert self.claim.measure is not None
        return Call(self.claim.measure, self.factors, version=self.version)


def run_trials(
    claims: Sequence[Claim],
    runs: Sequence[Run],
    *,
    models: Sequence[str | Path] = (),
    device: str = "cpu",
    dtype: str = "float32",
    recipe: str | None = None,
    sensitivity: bool = True,
    emergence: bool = True,
    jobs: int = 1,
    store: Path | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[Ruling]:
    """Measure and judge.

    Args:
        claims: With measures; rivals come with them.
        runs: Of any configurations; those that no claim is about are left alone.
        models: Language models, for claims about these: sources as for `language_model`, of which a name may carry a
            revision. They are loaded one at a time. Of one model its questions are the replicates of a claim per
            question, of several the models are.
        device: Where they go.
        dtype: Of their weights.
        recipe: Ask of models of this recipe in place of the claims' own; claims that do not vary the recipe themselves
            mean nothing there and are left out.
        sensitivity: Whether to ask with one factor changed too.
        emergence: Whether to follow the effects of one seed over its training.
        jobs: Processes at a time; 0: one per core.
        store: Directory that keeps what was measured, so that the same call continues; none: nothing is kept.
        report: Called in this process as work gets done.

    Raises:
        InputError: `jobs` is negative, a claim has no measure, its system cannot be imported as a whole, runs
            contradict each other, a claim is about language models and none is named, one is named twice, no such
            device or dtype exists, or a measure refuses its model.
    """
    n_processes(jobs)
    asked_models = language_models(models, device, dtype)
    if recipe is not None:
        claims = [moved for claim in claims if (moved := asked_of(claim, recipe))]
    for claim in claims:
        if claim.measure is None:
            raise InputError(f"claim {claim.id} has no measure, so nothing can be measured for it")
        _check_functions(claim)
        for module in modules_of(claim.measure):
            guests.require(module)
    as_registered = {claim.id: claim for claim in claims}
    claims = [asked_of_models(claim, [model.source for model in asked_models]) for claim in claims]
    asked = {claim.id: questions_about(claim, sensitivity) for claim in claims}
    bench = find_bench(runs, [question.claim for questions in asked.values() for question in questions])
    bench = replace(bench, models=asked_models)
    check_identity(bench)
    plans = {claim.id: plan(claim, asked[claim.id], bench, emergence=emergence) for claim in claims}
    work = merged([piece for plan in plans.values() for piece in plan])
    results = measure_all(work, jobs=jobs, store=store, report=_progress(plans, report))
    rulings = _rulings(claims, asked, bench, results, emergence=emergence)
    return [_beside_registration(as_registered[each.claim.id], each, bench, asked, results) for each in rulings]


def _beside_registration(
    claim: Claim, ruling: Ruling, bench: Bench, asked: Mapping[str, Sequence[Question]], results: Results
) -> Ruling:
    """The ruling with what of the claim is not as it was registered."""
    seeds = bench.seeds(claim) if claim.units else ()
    values = values_in([(q.claim, q.call) for q in asked[claim.id] if not q.factor], results)
    found = standing(claim, seeds, values)
    return replace(ruling, departures=found.departures, code=found.code)


def _check_functions(claim: Claim) -> None:
    """Results are kept, and workers are sent functions, by name."""
    for asked in (claim, *claim.rivals):
        for what, function in functions_of(asked).items():
            check_named(f"{what} of claim {asked.id}", function)


def asked_of(claim: Claim, recipe: str) -> Claim | None:
    """The claim about models of a recipe; None if it means nothing there, as it does not vary the recipe itself.

    Under another recipe than its own it stands alone, and no headline hangs on it.
    """
    if claim.recipe in ("", recipe):
        return claim
    if recipe not in claim.factors.get("recipe", ()):
        return None
    moved = under(claim, "recipe", recipe)
    alone = {"n_replicates": MIN_REPLICATES, "headline": False}
    return replace(moved, rivals=tuple(replace(rival, **alone) for rival in moved.rivals), **alone)


def under(claim: Claim, field: str, value: Any) -> Claim:
    """The claim about other configurations, and its rivals; what varies the same factor is dropped.

    Controls that are made from its configurations, such as untrained models and planted trajectories, are made from the
    others, with their sizes and checkpoints.
    """
    units = {name: unit.changed(field, value) for name, unit in claim.units.items()}
    factors = {name: values for name, values in claim.factors.items() if name != field}
    controls = tuple(replace(control, plant=_bound(control.plant, field, value)) for control in claim.controls)
    rivals = tuple(under(rival, field, value) for rival in claim.rivals)
    return replace(claim, units=units, factors=factors, controls=controls, rivals=rivals)


def _bound(given: Any, field: str, value: Any) -> Any:
    """The value that `partial` binds to a function, with every configuration in it changed."""
    match given:
        case Configuration():
            return given.changed(field, value)
        case partial():
            words = {name: _bound(each, field, value) for name, each in given.keywords.items()}
            return partial(given.func, *(_bound(each, field, value) for each in given.args), **words)
        case dict():
            return {name: _bound(each, field, value) for name, each in given.items()}
        case tuple():
            return tuple(_bound(each, field, value) for each in given)
    return given


def questions_about(claim: Claim, sensitivity: bool) -> list[Question]:
    """The claim, its rivals, and the cells of all of them."""
    asked, versions = [claim, *claim.rivals], registered_versions(claim)
    cells = [cell for one in asked for cell in _cells(one)] if sensitivity else []
    questions = [*(Question(claim=one) for one in asked), *cells]
    return [replace(each, version=versions.get(each.claim.id)) for each in questions]


def _cells(claim: Claim) -> list[Question]:
    """The claim with one factor changed at a time; it stands alone, and no headline hangs on it."""
    alone = replace(claim, n_replicates=MIN_REPLICATES, headline=False, rivals=(), factors={})
    return [
        Question(claim=under(alone, factor, value), factor=factor, value=str(value))
        if of_training(factor)
        else Question(claim=alone, factors=((factor, value),), factor=factor, value=str(value))
        for factor, values in claim.factors.items()
        for value in values
    ]


def developing(claim: Claim, bench: Bench) -> tuple[int, tuple[int, ...]] | None:
    """The first seed with checkpoints along training, and steps common to its runs: every other one of many."""
    for seed in bench.seeds(claim) if claim.units and claim.develops else ():
        steps = set.intersection(*(set(bench.finished[unit][seed].steps) for unit in claim.units.values()))
        if len(steps) > 2:
            every = 2 if len(steps) > MANY_STEPS else 1
            return seed, tuple(sorted(sorted(steps, reverse=True)[::every]))
    return None


def plan(claim: Claim, questions: Sequence[Question], bench: Bench, *, emergence: bool) -> list[Work]:
    """All that is measured for one claim."""
    work: list[Work] = []
    for question in questions:
        asked, calls = question.claim, (question.call,)
        if asked.of_language_models:
            work += [replace(model, calls=calls) for model in bench.models]
        for seed in () if asked.of_language_models else bench.seeds(asked):
            if asked.units:
                work += [OfRun(bench.finished[unit][seed], calls) for unit in asked.units.values()]
            else:
                work.append(OfDraw(question.call.measure, seed, calls))
        for control in asked.controls:
            if control.plant is not None:
                work += [OfPlant(control.plant, case, asked.compare, calls) for case in range(control.n)]
    if emergence and (along := developing(claim, bench)):
        seed, steps = along
        calls = tuple(replace(questions[0].call, step=step) for step in steps)
        work += [OfRun(bench.finished[unit][seed], calls) for unit in claim.units.values()]
    return work


def _progress(
    plans: Mapping[str, Sequence[Work]], report: Callable[[Progress], None] | None
) -> Callable[[Work], None] | None:
    """Counts finished work by claim."""
    if report is None:
        return None
    names = {id: {piece.name for piece in plan} for id, plan in plans.items()}
    done: set[str] = set()

    def finished(piece: Work) -> None:
        done.add(piece.name)
        report({id: (len(done & of), len(of)) for id, of in names.items()})

    return finished


def _rulings(
    claims: Sequence[Claim],
    asked: Mapping[str, Sequence[Question]],
    bench: Bench,
    results: Results,
    *,
    emergence: bool,
) -> list[Ruling]:
    evidence = {id: [_evidence(question, bench, results) for question in qs] for id, qs in asked.items()}
    verdicts = {}
    for system in dict.fromkeys(claim.system for claim in claims):
        of_system = [claim for claim in claims if claim.system == system]
        cases = [(claim, evidence[claim.id][0]) for claim in of_system]
        verdicts |= judge_family([*cases, *_absent(system, of_system)])
    rulings = []
    for claim in claims:
        others = list(zip(asked[claim.id], evidence[claim.id], strict=True))[1:]
        judged = [(question, judge(question.claim, found)) for question, found in others]
        before = {claim.id: verdicts[claim.id], **{q.claim.id: verdict for q, verdict in judged if not q.factor}}
        rulings.append(
            Ruling(
                claim=claim,
                evidence=evidence[claim.id][0],
                verdict=verdicts[claim.id],
                rivals={q.claim.id: verdict for q, verdict in judged if not q.factor},
                sensitivity=tuple(
                    Cell(factor=q.factor, value=q.value, verdict=verdict, before=before[q.claim.id].outcome)
                    for q, verdict in judged
                    if q.factor
                ),
                emergence=_emergence(asked[claim.id][0], bench, results) if emergence else None,
                set_aside=bench.set_aside(claim),
                superseded=superseded(claim),
            )
        )
    return rulings


def _absent(system: str, claims: Sequence[Claim]) -> list[tuple[Claim, Evidence]]:
    """The headline claims of a system that are not on trial, without evidence: Holm's procedure counts them."""
    there = {claim.id for claim in claims}
    registered = [CLAIMS.get(name) for name in CLAIMS.names()] if system else []
    absent = [c for c in registered if c.system == system and c.headline and c.id not in there]
    return [(replace(claim, controls=()), _collected(claim, [], {}, "")) for claim in absent]


def _evidence(question: Question, bench: Bench, results: Results) -> Evidence:
    """Effects of one question, replicate by replicate, with its controls."""
    claim, key = question.claim, question.call.key
    models = [model.source for model in bench.models] if claim.of_language_models else []
    if claim.of_language_models:
        each = as_replicates(claim, models, [results[model.name][key] for model in bench.models])
    else:
        each = [(seed, _of_seed(claim, seed, key, bench, results)) for seed in bench.seeds(claim)]
    controls = {}
    for control in claim.controls:
        if control.plant is not None:
            pieces = [OfPlant(control.plant, i, claim.compare, ()) for i in range(control.n)]
            cases = [results[piece.name][key] for piece in pieces]
            if claim.of_language_models:
                cases = [of_model(claim, case) for case in cases]
            controls[control.name] = _dataset(claim, cases, "case")
    found = _collected(claim, each, controls, claim.recipe, bench.left_out(claim))
    return replace(found, models=models)


def _of_seed(claim: Claim, seed: int, key: str, bench: Bench, results: Results) -> Measured:
    """The effects of one replicate."""
    if not claim.units:
        assert claim.measure is not None
        return results[OfDraw(claim.measure, seed, ()).name][key]
    units = {name: results[OfRun(bench.finished[unit][seed], ()).name][key] for name, unit in claim.units.items()}
    return next(iter(units.values())) if claim.compare is None else claim.compare(units)


def _collected(
    claim: Claim,
    each: Sequence[tuple[int | str, Measured]],
    controls: Mapping[str, xr.Dataset],
    recipe: str,
    left_out: Sequence[int] = (),
) -> Evidence:
    """Evidence of replicates that were measured."""
    labels = {claim.replicate: [label for label, _ in each]}
    effects = _dataset(claim, [measured for _, measured in each], claim.replicate).assign_coords(labels)
    gate = effects.get(GATE)
    effects = effects.drop_vars(GATE, errors="ignore")
    if SOURCE in effects:
        effects = effects.set_coords(SOURCE)
    if claim.gate is None:
        gate = None
    elif gate is None and each:
        raise InputError(f"the measure of claim {claim.id} gives no {GATE!r}, which its gate looks at")
    elif gate is None:
        gate = xr.DataArray(np.zeros(0), dims=claim.replicate, coords=labels)
    if recipe:
        effects = effects.assign_coords(recipe=recipe)
    return Evidence(
        effects=effects,
        gate=gate,
        controls=controls,
        prompts=claim.prompts,
        replicate=claim.replicate,
        left_out=left_out,
    )


def _dataset(claim: Claim, each: Sequence[Measured], dim: str) -> xr.Dataset:
    """The measurements, along `dim`; the effects that count even where nothing was measured."""
    units = {part.name: part.unit for part in claim.criteria}
    names = dict.fromkeys([*units, *(name for measured in each for name in measured)])
    arrays = {}
    for name in names:
        if missing := [measured for measured in each if name not in measured]:
            raise InputError(f"the measure of claim {claim.id} gives no {name!r}; it gives {', '.join(missing[0])}")
        values = np.array([measured[name] for measured in each], dtype=float)
        arrays[name] = ((dim, "prompt")[: max(values.ndim, 1)], values, {"unit": units.get(name, "")})
    return xr.Dataset(arrays)


def _emergence(question: Question, bench: Bench, results: Results) -> xr.Dataset | None:
    """The effects over training of one seed."""
    claim = question.claim
    along = developing(claim, bench)
    if along is None:
        return None
    seed, steps = along
    calls = [replace(question.call, step=step) for step in steps]
    each = [_of_seed(claim, seed, call.key, bench, results) for call in calls]
    found = _dataset(claim, each, "step").assign_coords(step=list(steps)).drop_vars(GATE, errors="ignore")
    return found.mean("prompt").assign_attrs(seed=seed) if "prompt" in found.dims else found.assign_attrs(seed=seed)
