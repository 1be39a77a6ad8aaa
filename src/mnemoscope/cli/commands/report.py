"""`mnemoscope report`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr

from mnemoscope.analyses.examine import examine_run, over_seeds
from mnemoscope.cli.options import Report
from mnemoscope.cli.output import console
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.sweeps.local import analyse_many
from mnemoscope.viz.report import report


def run(options: Report) -> None:
    """Analyse the runs and write the page."""
    write_report(options.out, examine_all(find_runs(options.runs), options.jobs))


def examine_all(runs: Sequence[Run], jobs: int) -> dict[str, dict[str, xr.Dataset]]:
    """Every analysis of every run, by configuration."""
    groups = by_label(runs)
    ordered = [run for group in groups.values() for run in group]
    with console.status(f"analysing {len(ordered)} runs"):
        results = iter(list(analyse_many(ordered, examine_run, jobs=jobs)))
    return {label: over_seeds(group, [next(results) for _ in group]) for label, group in groups.items()}


def write_report(path: Path, results: Mapping[str, Mapping[str, xr.Dataset]]) -> None:
    """Write the page and say where."""
    write_atomically(path, report(results).encode())
    console.print(f"wrote {path}", highlight=False)
