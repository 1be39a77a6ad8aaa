"""Replicates of claims: the runs that count, and the questions put to one language model, or the models.

A seed is the unit of replication, so each has to be a separate training, of the configuration that its name says, and
ended. Refused are runs that ended early or with other weights than they wrote down, that descend from another seed, and
two that are one (`models.independence`); also one configuration and seed under two names. Set aside are runs that are
not finished, and those of a configuration that differs from the one claimed in its split only. Seeds whose training did
not end may have been stopped because of how they went: they count against every decision (`Sample.left_out`).

A measure of a claim about language models returns, of one model, one number per question, or numbers. A claim per
`question` that is put to one model counts its questions. Everywhere else a model is one replicate: with the mean over
the questions that pass the gate, and, where none does, over all of them, with a gate that fails.

*Does not show* which runs were never handed in, nor how well the mean of
one model is known: questions are shared by all models, and what they have in common moves them together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.claims.claim import GATE, MIN_REPLICATES, Claim, Measured
from mnemoscope.claims.measures import ModelWork
from mnemoscope.core.errors import InputError, format_ranges, one_of
from mnemoscope.core.presets import SYSTEMS, Configuration
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import usable_device
from mnemoscope.models.independence import Inspection, check_replicates, shared_parts, shared_sentence
from mnemoscope.models.language.conversion import DTYPES
from mnemoscope.models.run import Run, by_label

PASSING = "questions that pass"
"""Name under which a model's number of questions that pass the gate is recorded, where each question has a gate."""


def expected_seeds(claim: Claim) -> list[int]:
    """The seeds on which the system of a claim judges it: those of the runs behind its verdicts that all units have.

    Of a claim about draws, its draws if it names the first.
    """
    if not claim.units:
        return draws_of(claim) if claim.first_seed else []
    each = _planned_seeds(claim)
    return sorted(filter(claim.counts, set.intersection(*each))) if each else []


def draws_of(claim: Claim) -> list[int]:
    """The draws that a claim about draws is judged on: as many as it needs, from its first on."""
    return list(range(claim.first_seed, claim.first_seed + claim.n_replicates))


def counting_seeds(claim: Claim, seeds: Iterable[int]) -> list[int]:
    """The seeds that a claim is judged on: those that it counts and, if its system plans runs, all outside the plan."""
    planned = set().union(*_planned_seeds(claim))
    return sorted(seed for seed in seeds if claim.counts(seed) or (planned and seed not in planned))


def _planned_seeds(claim: Claim) -> list[set[int]]:
    """The seeds of the runs behind the verdicts of the claim's system, by unit; none without such a system."""
    if not claim.units or claim.system not in SYSTEMS.names():
        return []
    judged = SYSTEMS.get(claim.system).judged
    each = []
    for unit in claim.units.values():
        of = [part for part in judged if unit.preset in part.presets]
        of = [part for part in of if (unit.recipe, unit.changes) == (part.recipe, part.changes)]
        each.append({seed for part in of for seed in part.seeds})
    return each


@dataclass(frozen=True)
class AdmittedRuns:
    """Runs by configuration and seed, finished ones to judge claims on and incomplete ones, and language models."""

    finished: Mapping[Configuration, Mapping[int, Run]]
    unfinished: Mapping[Configuration, Mapping[int, Run]]
    other_split: Mapping[Configuration, Sequence[Run]]
    models: Sequence[ModelWork] = ()
    inspected: dict[Path, Inspection] = field(default_factory=dict)
    """The findings of `check_identity` by directory."""

    def check_identity(self) -> None:
        """Refuse runs that are not what they say, or of which two are one."""
        for runs in self.finished.values():
            self.inspected.update((each.run.path, each) for each in check_replicates(runs.values()))

    def independence(self, claim: Claim) -> tuple[str, ...]:
        """Sentences on how many runs of a claim are verified, why others are not, and what their seeds share."""
        sentences = []
        for name, unit in claim.units.items():
            runs = [self.finished[unit][seed] for seed in self.seeds(claim)]
            found = [self.inspected[run.path] for run in runs if run.path in self.inspected]
            if unverified := [each for each in found if not each.verified]:
                why = "; ".join(unverified[0].missing)
                sentences.append(f"{name}: {len(unverified)} of {len(found)} runs unverified ({why})")
            elif found:
                sentences.append(f"{name}: {len(found)} runs verified")
            if shared := shared_sentence(shared_parts(runs)):
                sentences.append(f"{name}: {shared}")
        return tuple(sentences)

    def seeds(self, claim: Claim) -> list[int]:
        """Replicates: counted seeds with a finished run of every unit, or the draws of a claim about draws."""
        if not claim.units:
            return draws_of(claim)
        return counting_seeds(claim, set.intersection(*(set(self.finished[unit]) for unit in claim.units.values())))

    def left_out(self, claim: Claim) -> list[int]:
        """Seeds that count and were handed in, and of which some unit has a run that did not end."""
        started = {seed for unit in claim.units.values() for seed in self.unfinished[unit]}
        return counting_seeds(claim, started - set(self.seeds(claim)))

    def set_aside(self, claim: Claim) -> tuple[str, ...]:
        """The runs of a claim's configurations that were handed in and are not used, in sentences."""
        sentences = []
        for name, unit in claim.units.items():
            count = counting_seeds(claim, self.finished[unit])
            others = [seed for seed in self.finished[unit] if seed not in count]
            for seeds, why in (
                ([seed for seed in others if seed < claim.first_seed], "looked at before the criteria were fixed"),
                ([seed for seed in others if seed > claim.first_seed], "trained after the verdict"),
                (list(self.unfinished[unit]), "not finished"),
                ([run.spec.seed for run in self.other_split[unit]], "another split of the data"),
            ):
                if seeds:
                    sentences.append(f"{name}, seed{'s' if len(seeds) > 1 else ''} {format_ranges(seeds)}: {why}")
        return tuple(sentences)


def admit_runs(runs: Sequence[Run], claims: Iterable[Claim], models: Sequence[ModelWork] = ()) -> AdmittedRuns:
    """The runs that claims are about; refuses a seed of a configuration that occurs twice, under one name or two."""
    by_label([run for run in runs if run.finished])  # refuses a seed that stands there twice
    finished: dict[tuple, dict[int, Run]] = {}
    unfinished: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        group = (finished if run.finished else unfinished).setdefault(_comparable_fields(run.spec), {})
        other = group.setdefault(run.spec.seed, run)
        if other is not run and run.finished:
            raise InputError(
                f"{other.path} and {run.path} hold the same configuration and seed under two names, {other.label} and "
                f"{run.label}; hand in one of them"
            )
    specs = {unit: unit.spec(0) for claim in claims for unit in claim.units.values()}
    ended = {unit: finished.get(_comparable_fields(spec), {}) for unit, spec in specs.items()}
    begun = {unit: unfinished.get(_comparable_fields(spec), {}) for unit, spec in specs.items()}
    return AdmittedRuns(
        finished=ended,
        unfinished={
            unit: {seed: run for seed, run in runs.items() if seed not in ended[unit]} for unit, runs in begun.items()
        },
        other_split={unit: [run for run in runs if _differs_in_split(run.spec, spec)] for unit, spec in specs.items()},
        models=models,
    )


def _comparable_fields(spec: RunSpec) -> tuple:
    """The common part of runs of one configuration; the steps of kept checkpoints are no part of it."""
    task, model, recipe = spec.configuration
    return task, model, replace(recipe, checkpoint_steps=None, save_every=1)


def _differs_in_split(one: RunSpec, other: RunSpec) -> bool:
    """True if two specifications of one name would be alike if their splits were."""
    if one.label != other.label:  # of most pairs; whether configurations are alike takes longer to say
        return False
    (one_task, *one_rest), (other_task, *other_rest) = _comparable_fields(one), _comparable_fields(other)
    return one_rest == other_rest and one_task != other_task


def language_models(sources: Sequence[str | Path], device: str, dtype: str) -> tuple[ModelWork, ...]:
    """The language models on trial, each once; refuses names given twice, and unknown devices or number formats."""
    usable_device(device)
    one_of("dtype", dtype, DTYPES)
    names = [str(source) for source in sources]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"models must be named once each; got {', '.join(twice)} more than once")
    return tuple(ModelWork(name, device, dtype) for name in names)


def adapt_to_models(claim: Claim, models: Sequence[ModelWork]) -> Claim:
    """The claim as it is put to some models: where there are several, models are its replicates; so with its rivals."""
    if not claim.of_language_models:
        return claim
    if not models:
        raise InputError(
            f"claim {claim.id} is about language models; name some, such as the packaged 'smollm2' "
            "(--model at the command line, models= of run_trials)"
        )
    if len(models) == 1 or claim.replicate == "model":
        return claim
    rivals = tuple(adapt_to_models(rival, models) for rival in claim.rivals)
    n = MIN_REPLICATES if not claim.headline else claim.n_replicates
    return replace(claim, replicate="model", n_replicates=n, rivals=rivals)


def as_replicates(
    claim: Claim, models: Sequence[str], measured: Sequence[Measured]
) -> list[tuple[int | str, Measured]]:
    """Replicates with their labels, from the measurements on every model, or per question from arrays of one length."""
    if claim.replicate == "model":
        return [(model, average_prompts(claim, found)) for model, found in zip(models, measured, strict=True)]
    (found,) = measured
    sizes = {name: np.shape(value) for name, value in found.items()}
    if len(set(sizes.values())) != 1 or len(next(iter(sizes.values()))) != 1:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in sizes.items())
        raise InputError(
            f"the measure of claim {claim.id}, which is asked per question, must give arrays of one length, an entry "
            f"per question; got {shapes}"
        )
    (n,) = next(iter(sizes.values()))
    return [(i, {name: float(np.asarray(value)[i]) for name, value in found.items()}) for i in range(n)]


def average_prompts(claim: Claim, measured: Measured) -> Measured:
    """One number per effect: the mean over the questions that pass the gate, over all of them where none passes.

    The gate of a model is the mean of its gate values over the questions that pass, NaN where none does.
    """
    found: dict[str, Any] = dict(measured)
    gate = np.asarray(found.get(GATE, np.nan), dtype=float)
    passing = np.ones(gate.shape, dtype=bool)
    if claim.gate is not None and gate.ndim:
        passing = claim.gate.passes(gate)
        found[GATE] = gate[passing].mean() if passing.any() else np.nan
        found[PASSING] = float(passing.sum())
    chosen = passing if passing.ndim and passing.any() else ...
    return {name: float(np.asarray(value, dtype=float)[chosen if np.ndim(value) else ...].mean())
            for name, value in found.items()}  # fmt: skip
