"""What the commands that take models apart have in common: runs in; arrays, tables and a page with figures out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.analyses.stacking import over_seeds, side_by_side
from mnemoscope.cli.output import console, show, write_arrays, write_table
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import Task
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.sweeps.local import analyse_many
from mnemoscope.viz.page import Page
from mnemoscope.viz.tables import Table

Results = Mapping[str, Any]
"""By name a dataset along `seed`, or a tree with a dataset a seed where seeds differ in more than their values."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is shown of the results of one configuration."""

    tables: Sequence[Table]
    figures: Sequence[tuple[str, go.Figure]]
    """Caption and figure."""
    notes: Sequence[str] = field(default=())
    """What the results show and what they do not; sentences for the page."""


def each_configuration(
    paths: Sequence[Path], analyse: Callable[[Run], Mapping[str, xr.Dataset]], *, jobs: int, apart: Sequence[str] = ()
) -> Iterator[tuple[str, list[Run], Results]]:
    """Label, runs and results along `seed` of every configuration among the runs.

    Results named in `apart` differ between seeds in more than their values and become a tree, `seed-3` and so on.
    """
    for label, runs in by_label(find_runs(paths)).items():
        results = list(analyse_many(runs, analyse, jobs=jobs))
        alike = [{name: each[name] for name in each if name not in apart} for each in results]
        trees = {
            name: side_by_side({f"seed-{run.spec.seed}": each[name] for run, each in zip(runs, results, strict=True)})
            for name in apart
        }
        yield label, runs, {**over_seeds(runs, alike), **trees}


def corruption(task: Task, asked: str | None) -> str:
    """The kind of minimal pairs that is asked for, or the first that the task names.

    Raises:
        InputError: The task has no such kind.
    """
    kind = task.corruptions[0] if asked is None else asked
    one_of("--corruption", kind, task.corruptions)
    return kind


def publish(command: str, label: str, runs: Sequence[Run], results: Results, shown: Shown, out: Path) -> None:
    """Print the tables; write arrays, tables and a page with the figures to OUT/<label>/<command>.

    Arrays, tables and pages that an earlier call has left there are removed, since they may be of other options.
    """
    seeds, place = f"{label}, {len(runs)} seed{'s' if len(runs) > 1 else ''}", out / label / command
    for file in [file for kind in ("nc", "csv", "html") for file in place.glob(f"*.{kind}")]:
        file.unlink()
    page = Page(f"{command}: {seeds}", "Mean and range are over seeds." if len(runs) > 1 else "")
    for note in shown.notes:
        page.text(note)
    for caption, figure in shown.figures:
        page.figure(figure, caption)
    for table in shown.tables:
        show(f"{seeds}: {table.title}", table.header, table.rows, n_text=table.n_text)
        write_table(place / f"{table.name}.csv", table.header, table.rows)
        page.table(table.header, table.rows, table.title, n_text=table.n_text)
    write_arrays(place, results)
    write_atomically(place / f"{command}.html", page.html().encode())
    console.print(f"wrote {place / command}.html, with arrays and tables beside it", highlight=False)
