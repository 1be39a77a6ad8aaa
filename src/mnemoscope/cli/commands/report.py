"""`mnemoscope report`."""

from collections.abc import Sequence
from pathlib import Path

from mnemoscope.analyses.stacking import over_seeds
from mnemoscope.cli.output import console
from mnemoscope.cli.run_options import Report
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run, find_runs
from mnemoscope.sweeps.local import analyse_many
from mnemoscope.viz.reporting import analyse_run, by_report, report
from mnemoscope.viz.tables import Results
from mnemoscope.viz.task_report import TaskReport

Parts = Sequence[tuple[TaskReport, dict[str, Results]]]


def run(options: Report) -> None:
    """Analyse the runs and write the page."""
    write_report(options.out, analyse_all(find_runs(options.runs), options.jobs))


def analyse_all(runs: Sequence[Run], jobs: int) -> Parts:
    """Every analysis of every run, by the entry of its task and by configuration."""
    parts = by_report(runs)
    ordered = [run for _, groups in parts for group in groups.values() for run in group]
    with console.status(f"analysing {len(ordered)} runs"):
        results = iter(list(analyse_many(ordered, analyse_run, jobs=jobs)))
    return [
        (entry, {label: over_seeds(group, [next(results) for _ in group]) for label, group in groups.items()})
        for entry, groups in parts
    ]


def write_report(path: Path, parts: Parts) -> None:
    """Write the page and say where."""
    write_atomically(path, report(parts).encode())
    console.print(f"wrote {path}", highlight=False)
