"""The record of an analysis, its options, and runs measured with it.

The list of commands imports records, so their modules import slow ones inside functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import lazy_loader

import mnemoscope as ms
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.registry import Registry

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")

Results = Mapping[str, Any]
"""A dataset along `seed` by name, or a tree with a dataset per seed where seeds differ in more than their values."""
GATE = "gate"
"""Name of the result on what a model has learned (`analyses.baselines`)."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every analysis; field docstrings are the help texts."""

    split: Literal["train", "test"] = "test"
    """Mappings that the sequences show."""
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
class Measured:
    """Measurements of runs that differ in the seed only: `results` along `seed`, by name; `runs` in that order."""

    results: Results
    options: Any
    runs: Sequence[ms.Run]


def no_notes(measured: Measured) -> Sequence[str]:
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
        tables: Of `Measured`.
        figures: Of `Measured`: captions and plotly figures.
        finding: Of `Measured`: what was found, in a sentence made from the numbers. It is asked about seeds and skills
            that were learned only.
        limits: Sentences on how it is measured, and what it does not show.
        notes: Of `Measured`: more sentences, where they depend on the results.
        source: The paper of the method, if there is one.
        check: Refuses options before anything is measured.
        finish: Of a configuration's label and `Measured`: the results that are shown and written.
        apart: Names of results that differ between seeds in more than their values; they become trees.
        least_n: The smallest `n`.
        vectors: Whether it makes sense for tasks of vectors too.
    """

    name: str
    options: type[Options]
    measure: Callable[[ms.Run, Any], Results]
    tables: Callable[[Measured], Sequence[ms.report.Table]]
    figures: Callable[[Measured], Sequence[tuple[str, Any]]]
    finding: Callable[[Measured], str]
    limits: Sequence[str]
    notes: Callable[[Measured], Sequence[str]] = no_notes
    source: str = ""
    check: Callable[[Any], None] | None = None
    finish: Callable[[str, Measured], Results] | None = None
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

    def of_run(self, options: Any) -> Callable[[ms.Run], Results]:
        """A function that measures one run with these options, the comparison with the baselines included."""
        return partial(_with_gate, measure=self.measure, options=options)

    def put_together(self, label: str, runs: Sequence[ms.Run], each: Sequence[Results], options: Any) -> Measured:
        """The results of runs that differ in the seed only along `seed`."""
        alike = [{name: found[name] for name in found if name not in self.apart} for found in each]
        trees = {
            name: ms.analyses.side_by_side(
                {f"seed-{run.spec.seed}": found[name] for run, found in zip(runs, each, strict=True)}
            )
            for name in self.apart
        }
        results: Results = {**ms.analyses.over_seeds(runs, alike), **trees}
        measured = Measured(results=results, options=options, runs=runs)
        if self.finish is None:
            return measured
        return Measured(results=self.finish(label, measured), options=options, runs=runs)


RECORDS: Registry[Record] = Registry("analysis", "records")


def register(record: Record) -> Record:
    """Register an analysis, from then on a command too; raises InputError where the name is taken."""
    return RECORDS.add(record.name, record)


def records() -> dict[str, Record]:
    """All records by name: those of this folder, and those of guests."""
    package = importlib.import_module("mnemoscope.records")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return {name: RECORDS.get(name) for name in RECORDS.names()}


def analyse(name: str, runs: Sequence[ms.Run], *, jobs: int = 1, **options: Any) -> Measured:
    """Measure one or more runs that differ in the seed only; `shown` displays the result.

    `jobs` is the number of worker processes (0: one per core), `options` are those of the analysis, by field. Raises
    InputError where there is no such analysis or option, the runs are of several configurations, or the analysis
    refuses them.
    """
    from mnemoscope.core.errors import one_of
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
    each = list(analyse_many(runs, record.of_run(chosen), jobs=jobs))
    return record.put_together(labels[0], runs, each, chosen)


def drawn(run: ms.Run, options: Any, stream: str) -> ms.Batch:
    """Draw the options' number of sequences of each subgroup from a generator of the run's seed and a name."""
    generator = ms.generator(run.spec.seed, stream, options.split)
    return run.spec.task.monitor(options.n, split=options.split, generator=generator)


def _with_gate(run: ms.Run, *, measure: Callable[[ms.Run, Any], Results], options: Any) -> Results:
    return {**measure(run, options), GATE: ms.analyses.gate_of_run(run, split=options.split, step=options.step)}
