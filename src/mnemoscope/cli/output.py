"""Tables and live progress on the terminal; arrays, tables and pages in files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

import lazy_loader
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from mnemoscope.core.errors import InputError
from mnemoscope.core.runtime import listen_to_progress

if TYPE_CHECKING:
    import xarray as xr

    from mnemoscope.cli.options import FigureOptions
    from mnemoscope.report.page import PageFigure
    from mnemoscope.report.tables import Table
    from mnemoscope.training import recorder
else:
    xr = lazy_loader.load("xarray")  # a table on the terminal does not wait for it

console = Console(width=None if sys.stdout.isatty() else 160)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, n_text: int = 1) -> None:
    """Print a table; the first `n_text` columns are text, the others are numbers."""
    lines = box.HEAVY_HEAD if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else box.ASCII
    table = RichTable(title=Text(title), title_justify="left", title_style="bold", box=lines)
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < n_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def write_table(directory: Path, table: Table, *, latex: bool = False) -> None:
    """Write a table as it is shown and as numbers, and for LaTeX if asked to (`report.tables`)."""
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.tables import table_files

    for name, text in table_files(table, latex=latex):
        write_atomically(directory / name, text.encode())


def write_page(path: Path, html: str, figures: Sequence[PageFigure], options: FigureOptions) -> None:
    """Write a page, and its figures as files if the options name formats: figures/<page>-<n>-<words>.<format>.

    Figures of this page from an earlier call are replaced. Where they cannot be drawn, one line says so.
    """
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.printing import draw, for_print
    from mnemoscope.report.tables import pluralise

    write_atomically(path, html.encode())
    if not options.figures:
        return
    place = path.parent / "figures"
    earlier = re.compile(rf"{re.escape(path.stem)}-\d+(-[a-z0-9-]*)?\.(svg|pdf|png)")
    for file in [file for file in place.glob("*") if earlier.fullmatch(file.name)]:
        file.unlink()
    named = {
        f"{path.stem}-{n}{'-' if each.words else ''}{each.words}": for_print(each.figure, width=options.figure_width)
        for n, each in enumerate(figures, 1)
    }
    try:
        for name, content in draw(named, tuple(dict.fromkeys(options.figures))):
            write_atomically(place / name, content)
    except InputError as error:  # what else the command does is worth more than its figures
        console.print(f"no figures as files: {error}", highlight=False, markup=False, soft_wrap=True)
        return
    console.print(f"wrote {pluralise(len(named), 'figure')} to {place}", highlight=False)


def write_arrays(directory: Path, results: Mapping[str, xr.Dataset | xr.DataTree]) -> None:
    """Write every result as a netCDF file, `directory`/<name>.nc.

    netCDF has no complex numbers: such a variable becomes two, <variable>_real and <variable>_imag.
    """
    from mnemoscope.models.files import write_atomically

    for name, result in results.items():
        stored = _split_complex(result) if isinstance(result, xr.Dataset) else result
        write_atomically(directory / f"{name}.nc", bytes(stored.to_netcdf(engine="h5netcdf")))  # pyright: ignore[reportArgumentType]


def _split_complex(result: xr.Dataset) -> xr.Dataset:
    complex_ones = [str(name) for name, values in result.data_vars.items() if values.dtype.kind == "c"]
    parts = {f"{name}_real": result[name].real for name in complex_ones}
    parts |= {f"{name}_imag": result[name].imag for name in complex_ones}
    return result.drop_vars(complex_ones).assign(parts)


# ---- progress

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def regular_lines(text: Callable[[], str], console: Console = console) -> Iterator[None]:
    """Print `text()` and the time passed every ten seconds where the output is no terminal, as in a log."""
    if console.is_terminal:
        yield
        return
    began, ended = monotonic(), Event()

    def write() -> None:
        while not ended.wait(SECONDS_BETWEEN_LINES):
            passed = timedelta(seconds=round(monotonic() - began))
            console.print(f"{text()}, {passed} passed", highlight=False, markup=False, soft_wrap=True)

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@contextmanager
def countdown(n: int, what: str, console: Console = console) -> Iterator[Callable[[], None]]:
    """A function to be called after each of `n` pieces of work; shows how many are done and the time left.

    Progress within a piece in this process (`core.runtime`) counts for its share. Where the output is no terminal, a
    line appears every ten seconds. `what` names the pieces, such as `runs`, before the bar.
    """
    bars = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.percentage:3.0f}%", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal,
    )
    done, bar = 0, bars.add_task(_progress_text(what, 0, n), total=n)
    with bars, regular_lines(lambda: f"{bars.tasks[0].description}, {bars.tasks[0].percentage:.0f} %", console):

        def heard(pieces: int, of: int) -> None:
            bars.update(bar, completed=done + min(pieces / max(of, 1), 1))

        def advance() -> None:
            nonlocal done
            done += 1
            bars.update(bar, completed=done, description=_progress_text(what, done, n))

        with listen_to_progress(heard):
            yield advance


def _progress_text(what: str, done: int, n: int) -> str:
    return what if n == 1 else f"{what}, {done} of {n}"


@contextmanager
def live_training(n_runs: int, console: Console = console) -> Iterator[recorder.Report]:
    """A report function that shows loss, both accuracies and the time left; finished runs become a printed line."""
    bars = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
        console=console,
        expand=True,
    )
    tasks: dict[Path, TaskID] = {}
    shares: dict[Path, float] = {}
    overall = bars.add_task("runs", total=n_runs, numbers=f"0 of {n_runs}")

    def in_words() -> str:
        first = bars.tasks[0]
        left = f", about {timedelta(seconds=round(first.time_remaining))} left" if first.time_remaining else ""
        return f"trained {first.fields['numbers']} runs, {first.percentage:.0f} %{left}"

    with bars, regular_lines(in_words, console):

        def report(line: recorder.Progress) -> None:
            name = "/".join(line.path.parts[-2:])
            if line.path not in tasks:
                tasks[line.path] = bars.add_task(name, total=line.n_steps, numbers=_format_metrics(line, digits=0))
            bars.update(tasks[line.path], completed=line.step, numbers=_format_metrics(line, digits=0))
            shares[line.path] = line.step / line.n_steps
            if line.step == line.n_steps:
                bars.remove_task(tasks.pop(line.path))
                console.print(f"{name}  {_format_metrics(line, digits=1)}", highlight=False)
            done = sum(share == 1 for share in shares.values())
            bars.update(overall, completed=sum(shares.values()), numbers=f"{done} of {n_runs}")

        yield report


def _format_metrics(line: recorder.Progress, *, digits: int) -> str:
    """Loss on training sequences, and every accuracy on unseen ones; all of them with the clamps of training."""
    prefix = "clamped_" if "clamped_train_loss" in line.metrics else ""
    of_test = f"{prefix}test_"
    skills = [name for name in line.metrics if name.startswith(of_test) and "loss" not in name]
    accuracies = " ".join(f"{name.removeprefix(of_test)} {line.metrics[name]:4.{digits}%}" for name in skills)
    return f"{prefix.replace('_', ' ')}loss {line.metrics[f'{prefix}train_loss']:.{digits + 3}f} {accuracies}"
