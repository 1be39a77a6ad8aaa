"""The record of an analysis, its options, runs measured with it, and their display.

The list of commands imports records, so their modules import slow ones inside functions.

Models that learned nothing have no say in what is displayed. The finding is about models that beat every baseline of
their task (`analyses.baselines`), and about the skills on which they do. Where there is none, it says only that, so
that no part of a guessing model is called needed. Tables and figures leave out models that are no better than a
constant guess, unless all are.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import lazy_loader

import mnemoscope as ms
from mnemoscope.core.errors import InputError, format_ranges, in_range, one_of
from mnemoscope.core.guests import Registry

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")

Results = Mapping[str, Any]
"""A dataset along `seed` by name, or a tree with a dataset per seed where seeds differ in more than their values."""
GATE = "gate"
"""Name of the result on what a model has learned (`analyses.baselines`)."""
_NOT_BY_SKILL = ("roles",)
"""Results that say nothing by themselves, beside those of skills."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every analysis; field docstrings are the help texts."""

    split: Literal["train", "test"] = "test"
    """Sequences of the training set, or unseen ones."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(Options):
    """Options of analyses that compare clean and corrupted sequences."""

    corruption: str | None = None
    """Difference between clean and corrupted sequences; none: the first kind that the task names."""
    skills: tuple[str, ...] = ()
    """Skills whose sequences are used; none: all of the task."""
    n: int = 256
    """Sequences of each subgroup; others name the heads."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
    """Measurements of runs that differ in the seed only: `results` along `seed`, by name; `runs` in that order."""

    results: Results
    options: Any
    runs: Sequence[ms.Run]


def no_notes(measured: MeasuredRuns) -> Sequence[str]:
    """No sentences."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """An analysis: one value from which its command, report section, documentation and contract tests come.

    Attributes:
        name: Of the command and of its page.
        options: A dataclass that inherits from `Options` and has a field `n`, the number of sequences. Its docstring
            and those of its fields are the help.
        measure: Takes a run and the options; gives datasets by name. A function of a module: workers get it by name.
        tables: From `Measured`, as the next three.
        figures: Captions and plotly figures.
        finding: What was found, in a sentence made from the numbers, for seeds and skills that were learned only.
        limits: Sentences on how it is measured, and what it does not show.
        notes: More sentences, where they depend on the results.
        source: The paper of the method, if there is one.
        check: Refuses options before anything is measured.
        finish: From a configuration's label and `Measured`: the results that are shown and written.
        apart: Names of results that differ between seeds in more than their values; they become trees.
        least_n: The smallest `n`.
        vectors: Whether it makes sense for tasks of vectors too.
    """

    name: str
    options: type[Options]
    measure: Callable[[ms.Run, Any], Results]
    tables: Callable[[MeasuredRuns], Sequence[ms.report.Table]]
    figures: Callable[[MeasuredRuns], Sequence[tuple[str, Any]]]
    finding: Callable[[MeasuredRuns], str]
    limits: Sequence[str]
    notes: Callable[[MeasuredRuns], Sequence[str]] = no_notes
    source: str = ""
    check: Callable[[Any], None] | None = None
    finish: Callable[[str, MeasuredRuns], Results] | None = None
    apart: Sequence[str] = ()
    least_n: int = 2
    vectors: bool = False

    def refuse(self, options: Any, runs: Sequence[ms.Run], *, option: str = "n") -> None:
        """Refuse options or runs that the analysis does not take, before anything is measured.

        The InputError says why; the number of sequences is called `option` in it.
        """
        from mnemoscope.core.protocols import VectorTask

        in_range(option, options.n, self.least_n, float("inf"))
        if self.check is not None:
            self.check(options)
        for run in runs if not self.vectors else ():
            if isinstance(run.spec.task, VectorTask):
                others = ", ".join(name for name, record in records().items() if record.vectors)
                raise InputError(
                    f"{self.name} is about tokens, and runs on {run.spec.task.name} read and give vectors; {others}, "
                    "evaluate, report and track take them"
                )

    def measure_with_gate(self, options: Any) -> Callable[[ms.Run], Results]:
        """A function that measures one run with these options, the comparison with the baselines included."""
        return partial(_measure_with_gate, measure=self.measure, options=options)

    def combine(self, label: str, runs: Sequence[ms.Run], each: Sequence[Results], options: Any) -> MeasuredRuns:
        """Combine the results of runs that differ in the seed only along `seed`."""
        alike = [{name: found[name] for name in found if name not in self.apart} for found in each]
        trees = {
            name: ms.analyses.side_by_side(
                {f"seed-{run.spec.seed}": found[name] for run, found in zip(runs, each, strict=True)}
            )
            for name in self.apart
        }
        results: Results = {**ms.analyses.over_seeds(runs, alike), **trees}
        measured = MeasuredRuns(results=results, options=options, runs=runs)
        return measured if self.finish is None else replace(measured, results=self.finish(label, measured))


RECORDS: Registry[Record] = Registry("analysis", "records")
"""Every analysis by name, with its record."""


def register(record: Record) -> Record:
    """Register an analysis, from then on a command too; raises InputError where the name is taken."""
    return RECORDS.add(record.name, record)


def register_module(module: str, options: type[Options], **others: Any) -> Record:
    """Register the record that a module makes up, called by its `__name__`.

    Its functions `measure`, `tables`, `figures`, `finding`, and `notes`, `check` and `finish` where it has them, are
    fields of that name; `LIMITS` are the limits. The record is called as the module is; `others` are further fields.
    """
    own = vars(sys.modules[module])
    names = ("measure", "tables", "figures", "finding", "notes", "check", "finish")
    found = {name: own[name] for name in names if name in own}
    name = module.rpartition(".")[2].replace("_", "-")
    return register(Record(name=name, options=options, limits=own["LIMITS"], **found, **others))


def records() -> dict[str, Record]:
    """All records by name: those of this folder, and those of guests."""
    package = importlib.import_module("mnemoscope.records")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return {name: RECORDS.get(name) for name in RECORDS.names()}


def analyse(name: str, runs: Sequence[ms.Run], *, jobs: int = 1, **options: Any) -> MeasuredRuns:
    """Measure one or more runs that differ in the seed only; `shown` displays the result.

    `jobs` is the number of worker processes (0: one per core), `options` are those of the analysis, by field. Raises
    InputError where there is no such analysis or option, the runs are of several configurations, or the analysis
    refuses them.
    """
    from mnemoscope.models.run import by_label
    from mnemoscope.run.executor import analyse_many

    one_of("an analysis", name, records())
    record = RECORDS.get(name)
    for option in options:
        one_of(f"an option of {name}", option, record.options.__dataclass_fields__)
    chosen = record.options(**options)
    labels = list(by_label(runs))
    if len(labels) != 1:
        raise InputError(f"runs of one configuration are analysed together; got {', '.join(labels) or 'none'}")
    record.refuse(chosen, runs)
    each = list(analyse_many(runs, record.measure_with_gate(chosen), jobs=jobs))
    return record.combine(labels[0], runs, each, chosen)


def draw_sequences(run: ms.Run, options: Any, stream: str) -> ms.Batch:
    """Draw the options' number of sequences of each subgroup from a generator of the run's seed and a name."""
    generator = ms.generator(run.spec.seed, stream, options.split)
    return run.spec.task.monitor(options.n, split=options.split, generator=generator)


def _measure_with_gate(run: ms.Run, *, measure: Callable[[ms.Run, Any], Results], options: Any) -> Results:
    return {**measure(run, options), GATE: ms.analyses.gate_of_run(run, split=options.split, step=options.step)}


@dataclass(frozen=True, kw_only=True)
class Display:
    """The display of the results of one configuration."""

    finding: str = ""
    """The finding, a sentence made from the numbers; it opens the page, and ends the printed output."""
    tables: Sequence[ms.report.Table]
    figures: Sequence[tuple[str, Any]]
    """Caption and plotly figure."""
    notes: Sequence[str] = ()
    """Sentences for the page: the results and their limits."""


def render_results(record: Record, measured: MeasuredRuns) -> Display:
    """The tables, figures, finding and notes of a record for its measurements."""
    gate = measured.results[GATE]
    said = ms.report.findings.describe_learned_skills(gate)
    if gate.learned.any():
        learners = _select_seeds(measured, "learned")
        about = ms.analyses.select_learned_skills(learners.results)
        if about.keys() - {GATE, *_NOT_BY_SKILL}:
            said = f"{said} {record.finding(replace(learners, results=about))}".strip()
    there, guessing = _select_seeds(measured, "above_chance"), ~gate.above_chance.any("skill")
    notes = [*record.limits, *record.notes(there)]
    if guessing.any():
        seeds = format_ranges([int(seed) for seed in gate.seed.values[guessing.values]])
        where = "" if guessing.all() else " They are in the arrays, not in tables and figures."
        notes.insert(0, f"Not better than a constant guess on any skill: seeds {seeds}.{where}")
    return Display(finding=said, tables=record.tables(there), figures=record.figures(there), notes=notes)


def _select_seeds(measured: MeasuredRuns, level: Literal["learned", "above_chance"]) -> MeasuredRuns:
    """The same measurements for the seeds that reach a level on some skill, or for all if none does."""
    reached = measured.results[GATE][level].any("skill").values
    runs = [run for run, there in zip(measured.runs, reached, strict=True) if there or not reached.any()]
    return replace(measured, results=ms.analyses.select_learners(measured.results, level), runs=runs)
