"""Claims put on trial over runs: questions, what has to be measured for them, evidence, and rulings.

Beside the claim itself stand its rivals and its sensitivity table, which asks the same of other configurations, or
measures otherwise, one factor at a time. The headline claims of a system are corrected for each other also where only
some of them are on trial.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import (
    CLAIMS,
    GATE,
    MIN_REPLICATES,
    SOURCE,
    Claim,
    Measured,
    Outcome,
)
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.false_discoveries import with_discovery_rates
from mnemoscope.claims.judge import find_control_fault, judge, judge_family
from mnemoscope.claims.measures import (
    DrawWork,
    Results,
    RunWork,
    Work,
    control_work,
    measure_all,
    merge_work,
)
from mnemoscope.claims.multiverse import (
    Combination,
    Multiverse,
    Universe,
    can_halve_prompts,
    n_combinations,
)
from mnemoscope.claims.originals import with_originals
from mnemoscope.claims.registration import (
    check_registration,
    select_values,
    superseded_forms,
)
from mnemoscope.claims.replicates import (
    AdmittedRuns,
    adapt_to_models,
    admit_runs,
    as_replicates,
    average_prompts,
    expected_seeds,
    language_models,
)
from mnemoscope.claims.ruling import Ruling, SensitivityCell
from mnemoscope.claims.selection import describe_selection
from mnemoscope.claims.standing import claim_standing
from mnemoscope.claims.variants import ClaimVariant, check_measurable, claim_universes, claim_variants, with_recipe
from mnemoscope.claims.verdict import Verdict
from mnemoscope.claims.verification import check_run_files, describe_verified
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run
from mnemoscope.run.executor import n_processes

N_ROUGH = 999
"""Draws of the bootstrap for one combination of choices."""
MANY_STEPS = 12
"""More checkpoints than this are not all measured."""

Progress = Mapping[str, tuple[int, int]]
"""The pieces of work that are done for each claim, and how many there are."""


@check_arguments
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
    multiverse: bool = False,
    jobs: int = 1,
    store: Path | None = None,
    originals: Sequence[Path] = (),
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
        multiverse: Whether to judge each claim under combinations of its choices too, as `claims.multiverse` says.
        jobs: Processes at a time; 0: one per core.
        store: Directory that keeps what was measured, so that the same call continues; none: nothing is kept.
        originals: Files of published models, shown beside the judged seeds; no verdict rests on them.
        report: Called in this process as work gets done.

    Raises:
        InputError: `jobs` is negative, a claim has no measure, its system cannot be imported as a whole, or runs
            contradict each other. A claim is about language models and none is named, or one is named twice. No such
            device or dtype exists, or a measure refuses its model.

    >>> def recall(subject):
    ...     return {"effect": ms.analyses.accuracy_by_skill(subject)["recall"]}
    >>> how = {"quantifier": "most", "margin": 0.9, "units": {"v3": ms.Configuration(preset="v3")}, "measure": recall}
    >>> claim = ms.Claim(id="recalls", statement="v3 recalls.", source="ours", **how)
    >>> (ruling,) = ms.run_trials([claim], ms.find_runs("zoo:v3-quick")[:16], emergence=False)
    >>> ruling.verdict.outcome
    'SUPPORTED'
    """
    n_processes(jobs)
    asked_models = language_models(models, device, dtype)
    registered_form = [moved for claim in claims if (moved := with_recipe(claim, recipe))]
    for claim in registered_form:
        check_measurable(claim)
    claims = [adapt_to_models(claim, asked_models) for claim in registered_form]
    questions = {claim.id: claim_variants(claim, sensitivity) for claim in claims}
    universes = {claim.id: claim_universes(claim) if multiverse else [] for claim in claims}
    every_question = [*chain(*questions.values()), *(question for _, question in chain(*universes.values()))]
    admitted = admit_runs(runs, [question.claim for question in every_question], asked_models)
    admitted.check_identity()
    files = check_run_files(admitted)
    plans = {}
    for claim in claims:
        asked = [*questions[claim.id], *questions_with_models(universes[claim.id], admitted)]
        plans[claim.id] = plan_work(asked, admitted, emergence=emergence)
    work = merge_work([piece for pieces in plans.values() for piece in pieces])
    results = measure_all(work, jobs=jobs, store=store, report=_progress(plans, report))
    evidence = {id: [collect_evidence(each, admitted, results) for each in asked] for id, asked in questions.items()}
    verdicts = judge_systems([(claim, evidence[claim.id][0]) for claim in claims])
    rulings = []
    for claim, as_registered in zip(claims, registered_form, strict=True):
        asked = questions[claim.id]
        ruling = rule_on_claim(asked, evidence[claim.id], verdicts[claim.id])
        values = select_values([(each.claim, each.call) for each in asked if not each.changed], results)
        seeds = admitted.seeds(claim) if claim.units else expected_seeds(claim)
        found = check_registration(as_registered, seeds, values)
        used = [admitted.finished[unit][seed] for unit in claim.units.values() for seed in seeds]
        rulings.append(
            replace(
                ruling,
                emergence=follow_training(asked[0], admitted, results) if emergence else None,
                set_aside=admitted.set_aside(claim),
                independence=admitted.independence(claim),
                superseded=superseded_forms(claim),
                standing=claim_standing(as_registered, used),
                departures=found.departures or (),
                code=found.code,
                selection=describe_selection(claim, evidence[claim.id][0], admitted, store),
                verified=describe_verified(
                    claim, [files[run.path] for run in used], plan_work(asked[:1], admitted, emergence=False), store
                ),
                multiverse=judge_universes(claim, ruling.verdict.outcome, universes[claim.id], admitted, results),
            )
        )
    return with_originals(with_discovery_rates(rulings), originals)


def questions_with_models(
    universes: Sequence[tuple[Combination, ClaimVariant]], admitted: AdmittedRuns
) -> list[ClaimVariant]:
    """The questions of combinations, each once: those of which there are models enough for a verdict, or none is
    needed.
    """
    questions = dict.fromkeys(question for _, question in universes)
    return [each for each in questions if not each.claim.units or len(admitted.seeds(each.claim)) >= MIN_REPLICATES]


def judge_universes(
    claim: Claim,
    outcome: Outcome,
    universes: Sequence[tuple[Combination, ClaimVariant]],
    admitted: AdmittedRuns,
    results: Results,
) -> Multiverse | None:
    """The verdicts under combinations of choices, beside the `outcome` of the claim; None without combinations."""
    questions = questions_with_models(universes, admitted)
    evidence = {question: collect_evidence(question, admitted, results) for question in questions}
    faults = {question: find_control_fault(question.claim, found) or "" for question, found in evidence.items()}
    judged = []
    for combination, question in universes:
        found = evidence.get(question)
        if found is not None and (not combination.prompts or can_halve_prompts(found)):
            asked = replace(combination.applied_to(question.claim), controls=())
            verdict = judge(asked, replace(combination.chosen_from(found), controls={}), n_resamples=N_ROUGH)
            if verdict.n >= MIN_REPLICATES:
                choices = combination.in_words(claim)
                judged.append(Universe(choices=choices, verdict=verdict, fault=faults[question]))
    if not judged:
        return None
    return Multiverse(
        outcome=outcome,
        replicate=claim.replicate,
        universes=tuple(judged),
        n_combinations=n_combinations(claim),
        n_drawn=len(universes),
    )


def plan_work(questions: Sequence[ClaimVariant], admitted: AdmittedRuns, *, emergence: bool) -> list[Work]:
    """All that is measured for one claim: of its models and controls, and of one seed along training."""
    work: list[Work] = []
    for question in questions:
        replicates = [piece for units in _replicate_work(question.claim, admitted).values() for piece in units.values()]
        models = admitted.models if question.claim.of_language_models else ()
        controls = [piece for cases in control_work(question.claim).values() for piece in cases]
        work += [replace(piece, calls=(question.call,)) for piece in (*models, *replicates, *controls)]
    if emergence and (along := _common_checkpoints(questions[0].claim, admitted)):
        seed, steps = along
        calls = tuple(replace(questions[0].call, step=step) for step in steps)
        work += [replace(piece, calls=calls) for piece in _replicate_work(questions[0].claim, admitted)[seed].values()]
    return work


def _replicate_work(claim: Claim, admitted: AdmittedRuns) -> dict[int, dict[str, Work]]:
    """The work of every seed by configuration, or of every draw; none for a claim about language models."""
    if claim.of_language_models:
        return {}
    seeds = admitted.seeds(claim)
    if not claim.units:
        assert claim.measure is not None
        return {draw: {"draw": DrawWork(claim.measure, draw)} for draw in seeds}
    return {seed: {name: RunWork(admitted.finished[unit][seed]) for name, unit in claim.units.items()}
            for seed in seeds}  # fmt: skip


def _common_checkpoints(claim: Claim, admitted: AdmittedRuns) -> tuple[int, tuple[int, ...]] | None:
    """The first seed with checkpoints along training, and steps common to its runs: every other one of many."""
    for seed in admitted.seeds(claim) if claim.units and claim.develops else ():
        steps = set.intersection(*(set(admitted.finished[unit][seed].steps) for unit in claim.units.values()))
        if len(steps) > 2:
            every = 2 if len(steps) > MANY_STEPS else 1
            return seed, tuple(sorted(sorted(steps, reverse=True)[::every]))
    return None


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


def collect_evidence(question: ClaimVariant, admitted: AdmittedRuns, results: Results) -> Evidence:
    """The effects of one question, replicate by replicate, with its controls."""
    claim, key = question.claim, question.call.key
    controls = {name: [results[piece.name][key] for piece in cases] for name, cases in control_work(claim).items()}
    if claim.of_language_models:
        models = [model.source for model in admitted.models]
        each = as_replicates(claim, models, [results[model.name][key] for model in admitted.models])
        controls = {name: [average_prompts(claim, case) for case in cases] for name, cases in controls.items()}
    else:
        models = []
        each = [
            (label, _replicate_effects(claim, units, key, results))
            for label, units in _replicate_work(claim, admitted).items()
        ]
    found = _gather_evidence(claim, each, admitted.left_out(claim))
    return replace(
        found, controls={name: _stack_effects(claim, cases, "case") for name, cases in controls.items()}, models=models
    )


def _replicate_effects(claim: Claim, units: Mapping[str, Work], key: str, results: Results) -> Measured:
    """The effects of one replicate, from its work by configuration."""
    found = {name: results[piece.name][key] for name, piece in units.items()}
    return next(iter(found.values())) if claim.compare is None or not claim.units else claim.compare(found)


def _gather_evidence(
    claim: Claim, each: Sequence[tuple[int | str, Measured]], left_out: Sequence[int] = ()
) -> Evidence:
    """Evidence of replicates that were measured, without controls."""
    labels = {claim.replicate: [label for label, _ in each]}
    effects = _stack_effects(claim, [measured for _, measured in each], claim.replicate).assign_coords(labels)
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
    if claim.recipe:
        effects = effects.assign_coords(recipe=claim.recipe)
    return Evidence(effects=effects, gate=gate, prompts=claim.prompts, replicate=claim.replicate, left_out=left_out)


def _stack_effects(claim: Claim, each: Sequence[Measured], dim: str) -> xr.Dataset:
    """The measurements, along `dim`; the effects that count even where nothing was measured."""
    units = {part.name: part.unit for part in claim.criteria}
    arrays = {}
    for name in dict.fromkeys([*units, *(name for measured in each for name in measured)]):
        if missing := [measured for measured in each if name not in measured]:
            raise InputError(f"the measure of claim {claim.id} gives no {name!r}; it gives {', '.join(missing[0])}")
        values = np.array([measured[name] for measured in each], dtype=float)
        arrays[name] = ((dim, "prompt")[: max(values.ndim, 1)], values, {"unit": units.get(name, "")})
    return xr.Dataset(arrays)


def judge_systems(cases: Sequence[tuple[Claim, Evidence]]) -> dict[str, Verdict]:
    """Verdicts by id, system by system.

    Holm's procedure counts the headline claims of a system that are not on trial too: they get no evidence.
    """
    verdicts = {}
    for system in dict.fromkeys(claim.system for claim, _ in cases):
        family = [(claim, evidence) for claim, evidence in cases if claim.system == system]
        there = {claim.id for claim, _ in family}
        registered = [CLAIMS.get(name) for name in CLAIMS.names()] if system else []
        absent = [c for c in registered if c.system == system and c.headline and c.id not in there]
        family += [(claim, _gather_evidence(claim, [])) for claim in (replace(each, controls=()) for each in absent)]
        verdicts |= judge_family(family)
    return verdicts


def rule_on_claim(questions: Sequence[ClaimVariant], evidence: Sequence[Evidence], verdict: Verdict) -> Ruling:
    """The verdict on a claim beside those on its rivals and on the cells of its sensitivity table."""
    claim, others = questions[0].claim, zip(questions[1:], evidence[1:], strict=True)
    judged = [(question, judge(question.claim, found)) for question, found in others]
    rivals = {question.claim.id: found for question, found in judged if not question.changed}
    before = {claim.id: verdict, **rivals}
    cells = [
        SensitivityCell(factor=factor, value=str(value), verdict=found, before=before[each.claim.id].outcome)
        for each, found in judged
        for factor, value in each.changed
    ]
    return Ruling(claim=claim, evidence=evidence[0], verdict=verdict, rivals=rivals, sensitivity=tuple(cells))


def follow_training(question: ClaimVariant, admitted: AdmittedRuns, results: Results) -> xr.Dataset | None:
    """The effects over training of one seed; None where no seed has checkpoints along it."""
    claim = question.claim
    if (along := _common_checkpoints(claim, admitted)) is None:
        return None
    seed, steps = along
    units = _replicate_work(claim, admitted)[seed]
    each = [_replicate_effects(claim, units, replace(question.call, step=step).key, results) for step in steps]
    found = _stack_effects(claim, each, "step").assign_coords(step=list(steps)).drop_vars(GATE, errors="ignore")
    return (found.mean("prompt") if "prompt" in found.dims else found).assign_attrs(seed=seed)
