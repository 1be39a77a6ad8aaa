"""`mnemoscope evaluate`."""

from functools import partial

import xarray as xr

from mnemoscope.cli.analysis import each_configuration
from mnemoscope.cli.output import show, write_arrays, write_table
from mnemoscope.cli.run_options import Evaluate
from mnemoscope.core.errors import in_range
from mnemoscope.models.run import Run
from mnemoscope.viz.reporting import report_of


def run(options: Evaluate) -> None:
    """Print, for every configuration, the evaluation as its task's entry shows it; write it too if asked to."""
    if options.n_samples is not None:
        in_range("--n-samples", options.n_samples, 1, float("inf"))
    analyse = partial(evaluate_run, n_samples=options.n_samples)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        if options.out:
            write_arrays(options.out / label, results)
        for table in report_of(runs[0].spec.task).evaluation_tables(results):
            show(f"{label}, {len(runs)} seeds: {table.title}", table.header, table.rows, n_text=table.n_text)
            if options.out:
                write_table(options.out / label / f"{table.name}.csv", table.header, table.rows)


def evaluate_run(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Everything that one run is evaluated on."""
    return report_of(run.spec.task).evaluate(run, n_samples)
