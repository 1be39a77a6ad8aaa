"""`mnemoscope evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mnemoscope as ms
from mnemoscope.cli.analysis import each_configuration, xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import OfRuns, WritesTables
from mnemoscope.core.errors import InputError, in_range


@dataclass(frozen=True, kw_only=True)
class Evaluate(OfRuns, WritesTables):
    """Accuracy and loss beside the exact predictors, by what the task tells apart, and beside published figures."""

    n_samples: int | None = None
    """Sequences to draw; none: enumerate all of them, exactly, or draw a few hundred where there are too many."""
    out: Path | None = None
    """Directory for the arrays (netCDF) and tables (CSV)."""


def run(options: Evaluate) -> None:
    """Print, for every configuration, the evaluation as its task's entry shows it; write it too if asked to."""
    from mnemoscope.cli.output import show, write_arrays, write_table
    from mnemoscope.report.tables import counted

    if options.n_samples is not None:
        in_range("--n-samples", options.n_samples, 1, float("inf"))
    if options.latex and options.out is None:
        raise InputError("--latex writes files; name a directory with --out")
    analyse = partial(evaluate_run, n_samples=options.n_samples)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        if options.out:
            write_arrays(options.out / label, results)
        for table in ms.report.report_of(runs[0].spec.task).evaluation_tables(results):
            show(f"{label}, {counted(len(runs), 'seed')}: {table.title}", table.header, table.rows, n_text=table.n_text)
            if options.out:
                write_table(options.out / label, table, latex=options.latex)


def evaluate_run(run: ms.Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Everything that one run is evaluated on."""
    return ms.report.report_of(run.spec.task).evaluate(run, n_samples)


COMMANDS.add("evaluate", Command(options=Evaluate, run=run, section="train and look"))
