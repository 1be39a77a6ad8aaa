"""Tables as files: as they are shown, as numbers in tidy form, value by value, and for LaTeX.

A table shows `mean [low, high]` in one cell. Its tidy form has a row for each cell, nothing rounded: the texts that
name the row, the column, mean, low, high, the kind of interval, the number of replicates, and the unit if one is named.
The values behind a mean have a table of their own, with a row for every replicate. Columns without a number, such as a
reason in words, are among the texts that name the row.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeGuard

import xarray as xr

from mnemoscope.report.tables import Number, Table

_NUMBERS = ("column", "mean", "low", "high", "interval", "n", "unit")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "∞": r"$\infty$", "→": r"$\to$", "≥": r"$\geq$", "≤": r"$\leq$"},
    **{"×": r"$\times$", "±": r"$\pm$", "–": "--", "—": "---", "…": r"\dots{}", "“": "``", "”": "''", "²": "$^2$"},
    **{"α": r"$\alpha$", "█": "", "⚑": "", "✓": "", "✗": "", "\n": " "},
}
_LONG = 40
"""Smallest number of characters from which a column of text is set in lines."""


def table_files(table: Table, *, latex: bool = False) -> Iterator[tuple[str, str]]:
    """Files of a table: <name>.csv as shown, -tidy.csv of numbers, -seeds.csv of known replicates, <name>.tex on
    demand.
    """
    yield f"{table.name}.csv", _csv([table.header, *table.rows])
    numbers, each = list(tidy_rows(table)), list(replicate_rows(table))
    if len(numbers) > 1:
        yield f"{table.name}-tidy.csv", _csv(numbers)
    if len(each) > 1:
        yield f"{table.name}-seeds.csv", _csv(each)
    if latex:
        yield f"{table.name}.tex", latex_text(table)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def tidy_rows(table: Table) -> Iterator[list[object]]:
    """Header, and a row for every cell with a number."""
    yield [*_named(table), *_NUMBERS]
    for names, column, cell in _cells(table):
        numbers = (cell.mean, cell.low, cell.high)
        mean, low, high = ("" if math.isnan(value) else value for value in numbers)
        yield [*names, column, mean, low, high, cell.interval, "" if cell.n is None else cell.n, cell.unit]


def replicate_rows(table: Table) -> Iterator[list[object]]:
    """Header, and a row for every replicate of every cell; of seeds and draws each has a column."""
    cells = [(names, column, cell.each) for names, column, cell in _cells(table) if _known(cell.each)]
    dims = list(dict.fromkeys(str(each.dims[0]) for _, _, each in cells))
    yield [*_named(table), "column", *dims, "value"]
    for names, column, each in cells:
        (dim,) = each.dims
        for label, value in zip(each[dim].values.tolist(), each.values.tolist(), strict=True):
            places = [label if dim == name else "" for name in dims]
            yield [*names, column, *places, "" if math.isnan(value) else value]


def _known(each: xr.DataArray | None) -> TypeGuard[xr.DataArray]:
    """True if there are values of replicates, with labels."""
    return each is not None and each.dims[0] in each.coords


def _measured(table: Table) -> list[int]:
    columns = range(table.n_text, len(table.header))
    return [i for i in columns if any(_number(row[i]) is not None for row in table.rows)]


def _number(cell: str) -> Number | None:
    """The numbers of a cell; a whole number, such as a count, is its own text."""
    if isinstance(cell, Number):
        return cell
    return Number(cell, mean=int(cell)) if re.fullmatch(r"[+-]?\d+", cell) else None


def _naming(table: Table) -> list[int]:
    """Columns that name a row; bars are drawn in columns without a name."""
    measured = set(_measured(table))
    return [i for i, name in enumerate(table.header) if i not in measured and name]


def _named(table: Table) -> list[str]:
    return [table.header[i] for i in _naming(table)]


def _cells(table: Table) -> Iterator[tuple[list[str], str, Number]]:
    """The names of the row, the column, and the numbers; a cell that says in words why it has none is left out."""
    naming, measured = _naming(table), _measured(table)
    for row in table.rows:
        for i in measured:
            if (cell := _number(row[i])) is not None:
                yield [row[j] for j in naming], table.header[i], cell


def latex_text(table: Table) -> str:
    """A `tabular` with the rules of booktabs; LaTeX's special characters are escaped."""
    shown = [i for i, name in enumerate(table.header) if name]
    spare = sum(_is_long(table, i) for i in shown)
    measured = set(_measured(table))
    columns = "".join(
        f"p{{{0.6 / spare:.2f}\\linewidth}}" if _is_long(table, i) else "r" if i in measured else "l" for i in shown
    )
    header, *rows = (
        " & ".join(_escaped(row[i], number=i in measured) for i in shown) + r" \\"
        for row in chain([table.header], table.rows)
    )
    lines = [f"% {table.title}", r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}"]
    lines += [r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(" ".join(line.split()) for line in lines[:2]) + "\n" + "\n".join(lines[2:])


def _is_long(table: Table, i: int) -> bool:
    return any(len(row[i]) > _LONG for row in table.rows)


def _escaped(cell: str, *, number: bool) -> str:
    """A cell for LaTeX; a bracket at the start of a row would be read as an option of the line break before it."""
    text = "".join(_SPECIAL.get(letter, letter) for letter in cell)
    if number:
        text = re.sub(r"(?<![\w-])-(?=\d)", "$-$", text)
    return f"{{{text[0]}}}{text[1:]}" if text.startswith(("[", "*")) else text
