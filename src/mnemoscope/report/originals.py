"""A published model among seeds: every number of the tables of an analysis, with its rank."""

from collections.abc import Sequence

import xarray as xr

from mnemoscope.analyses.originals import describe_rank, place_original
from mnemoscope.report.tables import Number, Table, number_cells


def original_table(name: str, seeds: Sequence[Table], original: Sequence[Table]) -> Table:
    """The numbers of an original beside those of several seeds, where tables of both have a cell of the same names.

    Seeds without a value are left out, and so are cells with one seed alone.
    """
    own = {key: cell for key, cell in _cells(original).items() if cell.mean == cell.mean}
    rows = []
    for key, cell in _cells(seeds).items():
        each = None if cell.each is None else cell.each.dropna(cell.each.dims[0]).reset_coords(drop=True)
        if key not in own or each is None or each.size < 2:
            continue
        place = place_original(xr.DataArray(own[key].mean), each, over=str(each.dims[0]))
        title, names, column = key
        number = ", ".join(filter(None, (*names, column)))
        rows.append([title, number, own[key], cell, describe_rank(int(place["rank"]), int(place["n"]))])
    return Table(
        name=f"original-{name}",
        title=f"the original {name} beside the seeds",
        header=("table", "number", "original", "seeds", "place among the seeds"),
        rows=rows,
        n_text=2,
    )


def _cells(tables: Sequence[Table]) -> dict[tuple[str, tuple[str, ...], str], Number]:
    """The numbers of tables by the table's name, the names of the row, and the column."""
    return {(table.name, tuple(names), column): cell for table in tables for names, column, cell in number_cells(table)}
