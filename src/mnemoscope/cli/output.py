"""Tables on the terminal, arrays and tables in files."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lazy_loader
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import xarray as xr
else:
    xr = lazy_loader.load("xarray")  # a table on the terminal does not wait for it

console = Console(width=None if sys.stdout.isatty() else 160)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, n_text: int = 1) -> None:
    """Print a table; the first `n_text` columns are text, the others are numbers."""
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < n_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table as CSV."""
    from mnemoscope.models.files import write_atomically

    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())


def write_arrays(directory: Path, results: Mapping[str, xr.Dataset | xr.DataTree]) -> None:
    """Write every result as a netCDF file, `directory`/<name>.nc.

    netCDF has no complex numbers: a variable of them becomes two, <variable>_real and <variable>_imag.
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
