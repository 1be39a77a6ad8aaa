"""Commands that take models apart, each from the record of an analysis: runs in; arrays, tables and a page out."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lazy_loader

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, SECTIONS, Command
from mnemoscope.cli.options import FORMATS, AnalysisOptions, AnalysisOutputOptions, RecordOptions, ResultOptions
from mnemoscope.cli.originals import originals_by_label, with_originals
from mnemoscope.records.record import Display, MeasuredRuns, Record, Results, no_notes, render_results

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")  # the help of a command does not wait for it

T = TypeVar("T")


def record_command(record: Record) -> Command:
    """The command of a record: its options are those of the analysis and those of all commands that look at runs."""
    own = record.options

    def run(given: Any) -> None:
        chosen = own(**{field.name: getattr(given, field.name) for field in dataclasses.fields(own)})
        runs = ms.find_runs(given.runs)
        runs = [ms.analyses.with_clamps(run) for run in runs] if given.clamped else runs
        if given.dictionary:
            runs = [ms.models.run_with_dictionaries(run, given.dictionary) for run in runs]
        record.refuse(chosen, runs, option="--n")
        groups = ms.models.by_label(runs)
        originals = originals_by_label(groups, given.original)
        for label, members in groups.items():
            measured = measure_configuration(record, label, members, chosen, given.jobs)
            shown = render_results(record, measured)
            shown = with_originals(record, label, shown, originals[label], measured)
            publish(record.name, label, members, measured.results, shown, given)

    return Command(options=_options_class(own), run=run, section=SECTIONS[0])


@cache
def _options_class(own: type) -> type:
    """The options of an analysis with those of all commands that look at runs."""
    place = {"__doc__": own.__doc__, "__module__": own.__module__, "__qualname__": own.__qualname__}
    return dataclasses.make_dataclass(
        own.__name__, [], bases=(own, RecordOptions), frozen=True, kw_only=True, namespace=place
    )


def measure_configuration(record: Record, label: str, runs: Sequence[ms.Run], options: Any, jobs: int) -> MeasuredRuns:
    """Measure the runs of one configuration, and show how many are done."""
    each = analyse_runs(runs, record.measure_with_gate(options), jobs, label)
    return record.combine(label, runs, each, options)


def analysis_command(
    name: str,
    options: type[AnalysisOptions],
    *,
    measure: Callable[..., Results],
    show: Callable[..., Display],
    check: Callable[[Any], None] | None = None,
    finish: Callable[..., Results] | None = None,
    **others: Any,
) -> Command:
    """Register a command that takes models apart. Register a record in its place (`mnemoscope.records.register`).

    `options` have a field `n`. `measure` takes a run and `options`, and `show` the results of a configuration along
    `seed`, the options and the runs; `check` refuses options. `finish` takes label, runs, results and options, and
    returns the results that are shown and written. `others` are `least_n`, `apart` and `vectors` of a record.
    """
    instead = "mnemoscope.cli.analysis_command goes in the next release; register a mnemoscope.records.Record"
    warnings.warn(instead, FutureWarning, stacklevel=2)
    of_configuration = finish and (lambda label, found: finish(label, found.runs, found.results, found.options))
    needed: Any = {"options": options, "tables": no_notes, "figures": no_notes, "finding": no_notes, "limits": ()}
    record = Record(name=name, measure=measure, check=check, finish=of_configuration, **needed, **others)

    def run(chosen: Any) -> None:
        runs = ms.find_runs(chosen.runs)
        record.refuse(chosen, runs, option="--n")
        for label, members in ms.models.by_label(runs).items():
            each = analyse_runs(members, partial(measure, options=chosen), chosen.jobs, label)
            results = record.combine(label, members, each, chosen).results
            publish(name, label, members, results, show(results, chosen, members), chosen)

    return COMMANDS.add(name, Command(options=options, run=run, section=SECTIONS[0]))


def analyse_configurations(
    paths: Sequence[Path], analyse: Callable[[ms.Run], Mapping[str, xr.Dataset]], *, jobs: int
) -> Iterator[tuple[str, list[ms.Run], Results]]:
    """Label, runs and results along `seed` of every configuration among the runs."""
    for label, runs in ms.models.by_label(ms.find_runs(paths)).items():
        yield label, runs, ms.analyses.over_seeds(runs, analyse_runs(runs, analyse, jobs, label))


def analyse_runs(runs: Sequence[ms.Run], analyse: Callable[[ms.Run], T], jobs: int, what: str) -> list[T]:
    """An analysis, a function of a module, of every run, in their order; shows how many are done and the time left."""
    from mnemoscope.cli.output import countdown
    from mnemoscope.run.executor import analyse_many

    results = []
    with countdown(len(runs), what) as advance:
        for result in analyse_many(runs, analyse, jobs=jobs):
            results.append(result)
            advance()
    return results


def publish(
    command: str,
    label: str,
    runs: Sequence[ms.Run],
    results: Results,
    shown: Display,
    options: AnalysisOutputOptions | AnalysisOptions,
) -> None:
    """Write arrays, tables and a page with the figures to OUT/<label>/<command>; print the tables."""
    from mnemoscope.report.tables import pluralise

    seeds = f"{label}, {pluralise(len(runs), 'seed')}"
    lead = "Mean and range are over seeds." if len(runs) > 1 else ""
    present(command, seeds, results, shown, options.out / label / command, lead=lead, options=options)


def present(
    command: str,
    title: str,
    results: Results,
    shown: Display,
    place: Path,
    *,
    lead: str = "",
    options: ResultOptions | None = None,
) -> None:
    """Write arrays (<name>.nc), tables (<name>.csv, as numbers <name>-tidy.csv and <name>-seeds.csv) and a page with
    the figures (<command>.html) to the directory `place`; then print the tables.

    Arrays, tables, pages and figures that an earlier call has left there are removed, since they may come from other
    options. `title` stands before the title of every table, `lead` under that of the page. `options` say which figures
    and tables are written in other formats too.
    """
    page = ms.report.Page(f"{command}: {title}", lead)
    fill_page(page, shown)
    write_results(command, title, results, shown.tables, page, place, finding=shown.finding, options=options)


def fill_page(page: ms.report.Page, shown: Display) -> None:
    """Put finding, notes, figures and tables on a page."""
    if shown.finding:
        page.text(shown.finding, "finding")
    for note in shown.notes:
        page.text(note)
    for caption, figure in shown.figures:
        page.figure(figure, caption)
    for table in shown.tables:
        page.show(table)


def write_results(
    command: str,
    title: str,
    results: Results,
    tables: Sequence[ms.report.Table],
    page: ms.report.Page,
    place: Path,
    *,
    finding: str = "",
    options: ResultOptions | None = None,
) -> None:
    """As `present`, with a page that is there already."""
    from mnemoscope.cli.output import console, show, write_arrays, write_page, write_table

    options = options or ResultOptions()
    for kind in ("*.nc", "*.csv", "*.tex", "*.html", *(f"figures/{command}-*.{ending}" for ending in FORMATS)):
        for file in list(place.glob(kind)):
            file.unlink()
    write_arrays(place, results)
    for table in tables:
        write_table(place, table, latex=options.latex)
    write_page(place / f"{command}.html", page.html(), page.figures, options)
    for table in tables:
        show(f"{title}: {table.title}", table.header, table.rows, n_text=table.n_text)
    if finding:
        console.print(finding, highlight=False, markup=False)
    console.print(f"wrote {place / command}.html, with arrays and tables beside it", highlight=False)
