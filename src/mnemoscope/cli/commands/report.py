"""`mnemoscope report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction

import mnemoscope as ms
from mnemoscope.cli.analysis import analyse_runs, fill_page, measure_configuration
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import RegisteredNames, ReportOptions, RunOptions
from mnemoscope.core.errors import one_of

Sections = Mapping[str, "Mapping[str, ms.records.Display]"]
"""Displays by title of a section and label of a configuration."""


@dataclass(frozen=True, kw_only=True)
class Report(RunOptions, ReportOptions):
    """One self-contained HTML page on all given runs."""

    analyses: Annotated[tuple[str, ...], RegisteredNames("analyses")] = ()
    """Sections of these analyses too, by the names of their commands, with default options."""
    dictionary: UseAppendAction[tuple[Path, ...]] = ()
    """Dictionary whose features get a section, are sites of the analyses, and stand beside the neurons of the explorer;
    a file or directory; one name for all runs, such as `dictionaries/dictionary-00.safetensors` after
    `dictionary train`. May be repeated, one a layer."""
    out: Path = Path("report.html")
    """The page."""


def run(options: Report) -> None:
    """Analyse the runs and write the page."""
    runs = ms.find_runs(options.runs)
    shown = [ms.models.run_with_dictionaries(run, options.dictionary) for run in runs] if options.dictionary else runs
    chosen = _chosen(options.analyses, shown)
    for record, asked in chosen.values():
        record.refuse(asked, shown)
    parts, sections = analyse_all(runs, options.jobs), _sections(chosen, shown, options.jobs)
    write_report(options.out, runs, parts, options, sections, shown=shown)


def _chosen(names: Sequence[str], runs: Sequence[ms.Run]) -> dict[str, tuple[ms.records.Record, Any]]:
    """The records with these names and their options, by title, and those of the features of every dictionary."""
    from mnemoscope.models.dictionaries import dictionary_files

    known = ms.records.records()
    for name in names:
        one_of("--analyses", name, known)
    chosen = {name.capitalize(): (known[name], known[name].options()) for name in names}
    neurons = known["neurons"]
    for file in dictionary_files(runs[0]):
        layer = ms.load_dictionary(file, model=runs[0]).layer
        chosen[f"Features of layer {layer}"] = (neurons, replace(neurons.options(), units="features", layer=layer))
    return chosen


def _sections(chosen: Mapping[str, tuple[ms.records.Record, Any]], runs: Sequence[ms.Run], jobs: int) -> Sections:
    """The displays of every configuration, by title."""
    return {
        title: {
            label: ms.records.render_results(record, measure_configuration(record, label, members, asked, jobs))
            for label, members in ms.models.by_label(runs).items()
        }
        for title, (record, asked) in chosen.items()
    }


def analyse_all(
    runs: Sequence[ms.Run], jobs: int, found: dict[Path, ms.report.Results] | None = None
) -> list[tuple[ms.TaskReport, dict[str, ms.report.Results]]]:
    """Every analysis of every run, by task and configuration; `found`, known results by directory, gets new ones."""
    from mnemoscope.report.task_report import analyse_run, group_by_report

    parts = group_by_report(runs)
    ordered = [run for _, groups in parts for group in groups.values() for run in group]
    found = {} if found is None else found
    missing = [run for run in ordered if run.path not in found]
    found |= zip((run.path for run in missing), analyse_runs(missing, analyse_run, jobs, "runs analysed"), strict=True)
    return [
        (
            entry,
            {
                label: ms.analyses.over_seeds(group, _logged_by_all([found[run.path] for run in group]))
                for label, group in groups.items()
            },
        )
        for entry, groups in parts
    ]


def _logged_by_all(results: Sequence[ms.report.Results]) -> list[ms.report.Results]:
    """The results with those training metrics that all runs have: later versions log more."""
    common = set.intersection(*({*result["metrics"].data_vars} for result in results))
    return [
        {**result, "metrics": result["metrics"][[name for name in result["metrics"].data_vars if name in common]]}
        for result in results
    ]


def write_report(
    path: Path,
    runs: Sequence[ms.Run],
    parts: Sequence[tuple[ms.TaskReport, dict[str, ms.report.Results]]],
    options: ReportOptions,
    sections: Sections | None = None,
    *,
    shown: Sequence[ms.Run] | None = None,
) -> None:
    """Write the page on some runs, with sections of analyses, and the explorer unless it is declined; say where.

    `shown` are the runs of the explorer, such as those with dictionaries; None: the same.
    """
    from mnemoscope.cli.output import console, write_page
    from mnemoscope.report.task_report import report_page

    place = path.with_name(f"{path.stem}-explorer.html")
    explorer = _explorer(place, shown or runs, parts) if options.explore else None
    with console.status("the report is written"):
        page = report_page(parts, tasks=[run.spec.task for run in runs], explorer=explorer)
        for title, displays in (sections or {}).items():
            page.section(title)
            for label, display in displays.items():
                page.heading(label)
                fill_page(page, display)
        write_page(path, page.html(), page.figures, options)
    console.print(f"wrote {path}", highlight=False)


def _explorer(
    path: Path, runs: Sequence[ms.Run], parts: Sequence[tuple[ms.TaskReport, dict[str, ms.report.Results]]]
) -> str | None:
    """Write the explorer of the first seeds, with their results; returns its name, or None where it takes no model."""
    from mnemoscope.cli.commands.explore import write_explorer
    from mnemoscope.cli.output import console
    from mnemoscope.explorer.page import first_seeds, runs_page

    with console.status("the explorer is written"):
        taken, refused = first_seeds(runs, parts)
        for label, refusal in refused.items():
            console.print(f"{label} is not in the explorer: {refusal}", highlight=False)
        if not taken:
            return None
        try:
            page = runs_page(taken)
        except ms.InputError as refusal:
            console.print(f"there is no explorer: {refusal}", highlight=False)
            return None
        write_explorer(path, page, len(taken))
    return path.name


COMMANDS.add("report", Command(options=Report, run=run, section="understand a trained model", out_is_file=True))
