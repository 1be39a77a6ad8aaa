"""Rules by which runs count for claims, and refusals of what would make a verdict false.

A seed is the unit of replication, so each has to be a separate training, of the configuration that its name says, and
ended. Refused are runs whose last checkpoint is not that of the last step or not the one that training ended with, the
same weights under two seeds, and one configuration and seed under two names. Set aside are runs that are not finished,
and those of a configuration that differs from the one claimed in its split only. Seeds whose training did not end may
have been stopped because of how they went: they count against every decision (`Sample.left_out`).

*Does not show* that weights were not changed on purpose, nor which runs were never handed in.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.measuring import OfModel
from mnemoscope.claims.registration import that_count
from mnemoscope.core.errors import InputError, ranges
from mnemoscope.core.presets import Configuration
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.run import Run, by_label
from mnemoscope.models.subjects import check_replicates


@dataclass(frozen=True)
class Bench:
    """Runs by configuration and seed, finished ones to judge claims on and incomplete ones, and language models."""

    finished: Mapping[Configuration, Mapping[int, Run]]
    unfinished: Mapping[Configuration, Mapping[int, Run]]
    other_split: Mapping[Configuration, Sequence[Run]]
    models: Sequence[OfModel] = ()

    def seeds(self, claim: Claim) -> list[int]:
        """Replicates: counted seeds with a finished run of every unit; for a claim about draws, as many as it needs."""
        if not claim.units:
            return list(range(claim.n_replicates))
        common = set.intersection(*(set(self.finished[unit]) for unit in claim.units.values()))
        return that_count(claim, common)

    def left_out(self, claim: Claim) -> list[int]:
        """Seeds that count and were handed in, and of which some unit has a run that did not end."""
        started = {seed for unit in claim.units.values() for seed in self.unfinished[unit]}
        return that_count(claim, started - set(self.seeds(claim)))

    def set_aside(self, claim: Claim) -> tuple[str, ...]:
        """The runs of a claim's configurations that were handed in and are not used, in sentences."""
        sentences = []
        for name, unit in claim.units.items():
            count = that_count(claim, self.finished[unit])
            others = [run for seed, run in self.finished[unit].items() if seed not in count]
            for runs, why in (
                (
                    [run for run in others if run.spec.seed < claim.first_seed],
                    "looked at before the criteria were fixed",
                ),
                ([run for run in others if run.spec.seed > claim.first_seed], "trained after the verdict"),
                (self.unfinished[unit].values(), "not finished"),
                (self.other_split[unit], "another split of the data"),
            ):
                if runs:
                    seeds = ranges(run.spec.seed for run in runs)
                    sentences.append(f"{name}, seed{'s' if len(runs) > 1 else ''} {seeds}: {why}")
        return tuple(sentences)


def find_bench(runs: Sequence[Run], claims: Iterable[Claim]) -> Bench:
    """The runs that claims are about; refuses a seed of a configuration that occurs twice, under one name or two."""
    by_label([run for run in runs if run.finished])  # refuses a seed that stands there twice
    units = {unit for claim in claims for unit in claim.units.values()}
    finished: dict[tuple, dict[int, Run]] = {}
    unfinished: dict[tuple, dict[int, Run]] = {}
    for run in runs:
        group = (finished if run.finished else unfinished).setdefault(_alike(run.spec), {})
        other = group.setdefault(run.spec.seed, run)
        if other is not run and run.finished:
            raise InputError(
                f"{other.path} and {run.path} hold the same configuration and seed under two names, {other.label} and "
                f"{run.label}; hand in one of them"
            )
    asked = {unit: unit.spec(0) for unit in units}
    return Bench(
        finished={unit: finished.get(_alike(spec), {}) for unit, spec in asked.items()},
        unfinished={
            unit: {
                seed: run
                for seed, run in unfinished.get(_alike(spec), {}).items()
                if seed not in finished.get(_alike(spec), {})
            }
            for unit, spec in asked.items()
        },
        other_split={unit: [run for run in runs if _differs_in_split(run.spec, spec)] for unit, spec in asked.items()},
    )


def check_identity(bench: Bench) -> None:
    """Refuse runs whose weights are not what the run says, and weights that occur twice."""
    for runs in bench.finished.values():
        check_replicates(runs.values())


def _alike(spec: RunSpec) -> tuple:
    """The common part of runs of one configuration; the steps of kept checkpoints are no part of it."""
    task, model, recipe = spec.configuration
    return task, model, replace(recipe, checkpoint_steps=None, save_every=1)


def _differs_in_split(one: RunSpec, other: RunSpec) -> bool:
    """True if two specifications of one name would be alike if their splits were."""
    if one.label != other.label:  # of most pairs; whether configurations are alike takes longer to say
        return False
    (one_task, *one_rest), (other_task, *other_rest) = _alike(one), _alike(other)
    return one_rest == other_rest and one_task != other_task
