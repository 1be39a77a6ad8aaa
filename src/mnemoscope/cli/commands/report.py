"""`mnemoscope report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mnemoscope as ms
from mnemoscope.cli.analysis import analysed
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import DrawsFigures, OfRuns


@dataclass(frozen=True, kw_only=True)
class Report(OfRuns, DrawsFigures):
    """One self-contained HTML page on all given runs."""

    out: Path = Path("report.html")
    """The page."""


def run(options: Report) -> None:
    """Analyse the runs and write the page."""
    write_report(options.out, analyse_all(ms.find_runs(options.runs), options.jobs), options)


def analyse_all(
    runs: Sequence[ms.Run], jobs: int, found: dict[Path, ms.viz.Results] | None = None
) -> list[tuple[ms.TaskReport, dict[str, ms.viz.Results]]]:
    """Every analysis of every run, by the entry of its task and by configuration.

    Args:
        runs: Which.
        jobs: Processes at a time.
        found: By directory what is known of some runs; gets what is found of the others.
    """
    from mnemoscope.viz.reporting import analyse_run, by_report

    parts = by_report(runs)
    ordered = [run for _, groups in parts for group in groups.values() for run in group]
    found = {} if found is None else found
    missing = [run for run in ordered if run.path not in found]
    found |= zip((run.path for run in missing), analysed(missing, analyse_run, jobs, "runs analysed"), strict=True)
    return [
        (
            entry,
            {
                label: ms.analyses.over_seeds(group, [found[run.path] for run in group])
                for label, group in groups.items()
            },
        )
        for entry, groups in parts
    ]


def write_report(
    path: Path, parts: Sequence[tuple[ms.TaskReport, dict[str, ms.viz.Results]]], options: DrawsFigures
) -> None:
    """Write the page and say where."""
    from mnemoscope.cli.output import console, write_page
    from mnemoscope.viz.reporting import report_page

    with console.status("the report is written"):
        page = report_page(parts)
        write_page(path, page.html(), page.figures, options)
    console.print(f"wrote {path}", highlight=False)


COMMANDS.add("report", Command(options=Report, run=run, section="train and look", out_is_file=True))
