"""Tables on the terminal, arrays and tables in files."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lazy_loader
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from mnemoscope.cli.options import DrawsFigures
    from mnemoscope.report.page import Drawn
    from mnemoscope.report.tables import Table
else:
    xr = lazy_loader.load("xarray")  # a table on the terminal does not wait for it

console = Console(width=None if sys.stdout.isatty() else 160)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, n_text: int = 1) -> None:
    """Print a table; the first `n_text` columns are text, the others are numbers."""
    table = RichTable(title=Text(title), title_justify="left", title_style="bold")
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


def write_page(path: Path, html: str, figures: Sequence[Drawn], options: DrawsFigures) -> None:
    """Write a page, and its figures as files if the options name formats: figures/<page>-<n>-<words>.<format>.

    Figures of this page from an earlier call are replaced. Where they cannot be drawn, one line says so.
    """
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.printing import draw, for_print
    from mnemoscope.report.tables import counted

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
    console.print(f"wrote {counted(len(named), 'figure')} to {place}", highlight=False)


def write_arrays(directory: Path, results: Mapping[str, xr.Dataset | xr.DataTree]) -> None:
    """Write every result as a netCDF file, `directory`/<name>.nc.

    netCDF has no complex numbers: such a variable becomes two, <variable>_real and <variable>_imag.
    """
    from mnemoscope.models.files import write_atomically

    for name, result in results.items():
        stored = _real(result) if isinstance(result, xr.Dataset) else result
        write_atomically(directory / f"{name}.nc", bytes(stored.to_netcdf(engine="h5netcdf")))  # pyright: ignore[reportArgumentType]


def _real(result: xr.Dataset) -> xr.Dataset:
    complex_ones = [str(name) for name, values in result.data_vars.items() if values.dtype.kind == "c"]
    parts = {f"{name}_real": result[name].real for name in complex_ones}
    parts |= {f"{name}_imag": result[name].imag for name in complex_ones}
    return result.drop_vars(complex_ones).assign(parts)
