"""Tables on the terminal, arrays and tables in files."""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mnemoscope.models.files import write_atomically

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
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())


def write_arrays(directory: Path, results: Mapping[str, xr.Dataset]) -> None:
    """Write every result as a netCDF file and as a long CSV table, `directory`/<name>.nc and .csv."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        write_atomically(directory / f"{name}.nc", bytes(result.to_netcdf(engine="h5netcdf")))
        write_atomically(directory / f"{name}.csv", result.to_dataframe().to_csv().encode())
