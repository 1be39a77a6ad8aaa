"""Commands that take models apart: runs in; arrays, tables and a page with figures out.

Such a command says what it measures of one run and what it shows of a configuration (`analysis_command`); workers,
stacking along `seed`, files and the page are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lazy_loader

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import FORMATS, AnalysisOptions, WritesResults
from mnemoscope.core.errors import InputError, in_range

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")  # the help of a command does not wait for it

Results = Mapping[str, Any]
"""By name a dataset along `seed`, or a tree with a dataset per seed where seeds differ in more than their values."""
Measure = Callable[..., Mapping[str, Any]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The display of the results of one configuration."""

    finding: str = ""
    """What was found, in one sentence made from the numbers; opens the page, and ends what is printed."""
    tables: Sequence[ms.viz.Table]
    figures: Sequence[tuple[str, Any]]
    """Caption and plotly figure."""
    notes: Sequence[str] = field(default=())
    """What the results show and what they do not; sentences for the page."""


def analysis_command(
    name: str,
    options: type[AnalysisOptions],
    *,
    measure: Measure,
    show: Callable[..., Shown],
    check: Callable[[Any], None] | None = None,
    finish: Callable[..., Results] | None = None,
    least_n: int = 2,
    apart: Sequence[str] = (),
    vectors: bool = False,
) -> Command:
    """Register a command that takes models apart.

    Args:
        name: Of the command.
        options: Its options, with a field `n`.
        measure: A function of a module (workers are sent it by name) that takes a run and `options`.
        show: Takes the results of a configuration along `seed`, the options and the runs.
        check: Refuses options before anything is measured.
        finish: Takes label, runs, results and options, and returns the results that are shown and written.
        least_n: The smallest `--n`.
        apart: Names of results that differ between seeds in more than their values (`each_configuration`).
        vectors: Whether it makes sense for tasks of vectors too.
    """

    def run(chosen: Any) -> None:
        in_range("--n", chosen.n, least_n, float("inf"))
        if check is not None:
            check(chosen)
        if not vectors:
            _check_tokens(name, chosen.runs)
        measured = partial(measure, options=chosen)
        for label, runs, found in each_configuration(chosen.runs, measured, jobs=chosen.jobs, apart=apart):
            results = found if finish is None else finish(label, runs, found, chosen)
            publish(name, label, runs, results, show(results, chosen, runs), chosen)

    return COMMANDS.add(name, Command(options=options, run=run, section="take models apart"))


def _check_tokens(command: str, paths: Sequence[Path]) -> None:
    """Refuse runs on vectors."""
    from mnemoscope.core.protocols import VectorTask

    for run in ms.find_runs(paths):
        if isinstance(run.spec.task, VectorTask):
            raise InputError(
                f"{command} is about tokens, and runs on {run.spec.task.name} read and give vectors; ablate, edges, "
                "evaluate, heads, patch, report and track take them"
            )


def drawn(run: ms.Run, options: Any, stream: str) -> ms.Batch:
    """Sequences to measure on, from a generator of the run's seed and that name."""
    generator = ms.generator(run.spec.seed, stream, options.split)
    return run.spec.task.monitor(options.n, split=options.split, generator=generator)


def each_configuration(
    paths: Sequence[Path],
    analyse: Callable[[ms.Run], Mapping[str, xr.Dataset]],
    *,
    jobs: int,
    apart: Sequence[str] = (),
) -> Iterator[tuple[str, list[ms.Run], Results]]:
    """Label, runs and results along `seed` of every configuration among the runs.

    Results named in `apart` differ between seeds in more than their values and become a tree, `seed-3` and so on.
    """
    for label, runs in ms.models.by_label(ms.find_runs(paths)).items():
        results = analysed(runs, analyse, jobs, label)
        alike = [{name: each[name] for name in each if name not in apart} for each in results]
        trees = {
            name: ms.analyses.side_by_side(
                {f"seed-{run.spec.seed}": each[name] for run, each in zip(runs, results, strict=True)}
            )
            for name in apart
        }
        yield label, runs, {**ms.analyses.over_seeds(runs, alike), **trees}


def analysed(runs: Sequence[ms.Run], analyse: Callable[[ms.Run], T], jobs: int, what: str) -> list[T]:
    """An analysis, a function of a module, of every run, in their order; shows how many are done and the time left."""
    from mnemoscope.cli.output import console
    from mnemoscope.cli.progress import counted_down
    from mnemoscope.sweeps.local import analyse_many

    results = []
    with counted_down(len(runs), what, console) as advance:
        for result in analyse_many(runs, analyse, jobs=jobs):
            results.append(result)
            advance()
    return results


def publish(
    command: str, label: str, runs: Sequence[ms.Run], results: Results, shown: Shown, options: AnalysisOptions
) -> None:
    """Print the tables; write arrays, tables and a page with the figures to OUT/<label>/<command>."""
    from mnemoscope.viz.tables import counted

    seeds = f"{label}, {counted(len(runs), 'seed')}"
    lead = "Mean and range are over seeds." if len(runs) > 1 else ""
    present(command, seeds, results, shown, options.out / label / command, lead=lead, options=options)


def present(
    command: str,
    title: str,
    results: Results,
    shown: Shown,
    place: Path,
    *,
    lead: str = "",
    options: WritesResults | None = None,
) -> None:
    """Print the tables; write arrays (<name>.nc), tables (<name>.csv, as numbers <name>-tidy.csv and <name>-seeds.csv)
    and a page with the figures (<command>.html).

    Arrays, tables, pages and figures that an earlier call has left there are removed, since they may be of other
    options.

    Args:
        command: What the page is called.
        title: What the results are of; stands before the title of every table.
        results: By name, to be written as arrays.
        shown: Tables, figures and notes.
        place: Directory that is written to.
        lead: A sentence under the title of the page.
        options: Which figures and tables are written in other formats too; none: none.
    """
    page = ms.viz.Page(f"{command}: {title}", lead)
    if shown.finding:
        page.text(shown.finding, "finding")
    for note in shown.notes:
        page.text(note)
    for caption, figure in shown.figures:
        page.figure(figure, caption)
    for table in shown.tables:
        page.show(table)
    write_results(command, title, results, shown.tables, page, place, finding=shown.finding, options=options)


def write_results(
    command: str,
    title: str,
    results: Results,
    tables: Sequence[ms.viz.Table],
    page: ms.viz.Page,
    place: Path,
    *,
    finding: str = "",
    options: WritesResults | None = None,
) -> None:
    """As `present`, with a page that is there already."""
    from mnemoscope.cli.output import console, show, write_arrays, write_page, write_table

    options = options or WritesResults()
    for kind in ("*.nc", "*.csv", "*.tex", "*.html", *(f"figures/{command}-*.{ending}" for ending in FORMATS)):
        for file in list(place.glob(kind)):
            file.unlink()
    for table in tables:
        show(f"{title}: {table.title}", table.header, table.rows, n_text=table.n_text)
        write_table(place, table, latex=options.latex)
    if finding:
        console.print(finding, highlight=False, markup=False)
    write_arrays(place, results)
    write_page(place / f"{command}.html", page.html(), page.figures, options)
    console.print(f"wrote {place / command}.html, with arrays and tables beside it", highlight=False)
