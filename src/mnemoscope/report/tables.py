"""Results as rows of text, for the terminal and the report, and as files: as shown, tidy, by replicate, for LaTeX.

A cell that was rounded from numbers is a text that keeps them (`Number`). A table shows `mean [low, high]` in one cell.
Its tidy form has a row for each cell, nothing rounded: the texts that name the row, the column, mean, low, high, the
kind of interval, the number of replicates, and the unit if one is named. The values behind a mean have a table of their
own, with a row for every replicate. Columns without a number are among the texts that name the row.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeGuard

import xarray as xr

from mnemoscope.core.errors import format_ranges as format_ranges
from mnemoscope.core.errors import format_rounded as format_rounded
from mnemoscope.core.errors import pluralise as pluralise
from mnemoscope.core.numerics import mean_and_range

Results = Mapping[str, xr.Dataset]
"""Datasets by name."""


Interval = Literal["", "range", "95 %"]


class Number(str):
    """The text of a cell, shown like any other, with the numbers that it was rounded from.

    `mean` is that over `n` replicates, or the only value (`n` None). `low` and `high` are the ends of `interval`, a
    range over replicates or a confidence interval; NaN: there is none. `unit` is set where the text names it. `each`
    has the values of the replicates over one dimension; None: they are not known.
    """

    mean: float
    low: float
    high: float
    interval: Interval
    n: int | None
    unit: str
    each: xr.DataArray | None

    def __new__(
        cls,
        text: str,
        *,
        mean: float,
        low: float = math.nan,
        high: float = math.nan,
        interval: Interval = "",
        n: int | None = None,
        unit: str = "",
        each: xr.DataArray | None = None,
    ) -> "Number":
        """See the class."""
        self = super().__new__(cls, text)
        self.mean, self.low, self.high, self.interval = mean, low, high, interval
        self.n, self.unit, self.each = n, unit, each
        return self

    def __add__(self, text: str) -> "Number":
        """The same numbers with something behind the text."""
        return type(self)(str(self).__add__(text), **vars(self))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text; `name` is the file's, the first `n_text` columns are text."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_text: int = 1


BAR = 24
"""Characters of a full bar."""


def bar(share: float) -> str:
    """A share as a bar of text."""
    filled = round(share * BAR)
    return "█" * filled + "·" * (BAR - filled)


def mean_with_range(values: xr.DataArray, form: str = ".4f") -> Number:
    """Mean over replicates (the only dimension), with the range of several known ones; a dash where none is known."""
    (dim,) = (str(dim) for dim in values.dims)
    summary = mean_and_range(values, dim)
    mean, low, high = (float(summary.sel(summary=name)) for name in ("mean", "min", "max"))
    n = int(values.notnull().sum())
    if math.isnan(mean):
        return Number("–", mean=mean, n=n, each=values)
    if n == 1:
        return Number(format_rounded(mean, form), mean=mean, n=n, each=values)
    text = f"{format_rounded(mean, form)} [{format_rounded(low, form)}, {format_rounded(high, form)}]"
    return Number(text, mean=mean, low=low, high=high, interval="range", n=n, each=values)


def interval(
    mean: float, low: float, high: float, form: str = ".3f", *, n: int | None = None, each: xr.DataArray | None = None
) -> Number:
    """A mean with the ends of its 95 % interval; arguments as of `Number`."""
    text = f"{format_rounded(mean, form)} [{format_rounded(low, form)}, {format_rounded(high, form)}]"
    return Number(text, mean=mean, low=low, high=high, interval="95 %", n=n, each=each)


def single_number(value: float, form: str = ".4f") -> Number:
    """A number that is no mean over replicates."""
    return Number(format_rounded(value, form), mean=value)


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
"""Smallest number of characters from which a column of text is broken into lines."""


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
    yield [*_naming_headers(table), *_NUMBERS]
    for names, column, cell in number_cells(table):
        numbers = (cell.mean, cell.low, cell.high)
        mean, low, high = ("" if math.isnan(value) else value for value in numbers)
        yield [*names, column, mean, low, high, cell.interval, "" if cell.n is None else cell.n, cell.unit]


def replicate_rows(table: Table) -> Iterator[list[object]]:
    """Header, and a row for every replicate of every cell; of seeds and draws each has a column."""
    cells = [(names, column, cell.each) for names, column, cell in number_cells(table) if _has_replicates(cell.each)]
    dims = list(dict.fromkeys(str(each.dims[0]) for _, _, each in cells))
    yield [*_naming_headers(table), "column", *dims, "value"]
    for names, column, each in cells:
        (dim,) = each.dims
        for label, value in zip(each[dim].values.tolist(), each.values.tolist(), strict=True):
            places = [label if dim == name else "" for name in dims]
            yield [*names, column, *places, "" if math.isnan(value) else value]


def _has_replicates(each: xr.DataArray | None) -> TypeGuard[xr.DataArray]:
    """True if there are values of replicates, with labels."""
    return each is not None and each.dims[0] in each.coords


def _number_columns(table: Table) -> list[int]:
    columns = range(table.n_text, len(table.header))
    return [i for i in columns if any(_number(row[i]) is not None for row in table.rows)]


def _number(cell: str) -> Number | None:
    """The numbers of a cell; a whole number, such as a count, is its own text."""
    if isinstance(cell, Number):
        return cell
    return Number(cell, mean=int(cell)) if re.fullmatch(r"[+-]?\d+", cell) else None


def _naming_columns(table: Table) -> list[int]:
    """Columns that name a row; bars are drawn in columns without a name."""
    measured = set(_number_columns(table))
    return [i for i, name in enumerate(table.header) if i not in measured and name]


def _naming_headers(table: Table) -> list[str]:
    return [table.header[i] for i in _naming_columns(table)]


def number_cells(table: Table) -> Iterator[tuple[list[str], str, Number]]:
    """The names of the row, the column, and the numbers; a cell that says in words why it has none is left out."""
    naming, measured = _naming_columns(table), _number_columns(table)
    for row in table.rows:
        for i in measured:
            if (cell := _number(row[i])) is not None:
                yield [row[j] for j in naming], table.header[i], cell


def latex_text(table: Table) -> str:
    """A `tabular` with the rules of booktabs; LaTeX's special characters are escaped."""
    shown = [i for i, name in enumerate(table.header) if name]
    spare = sum(_is_long(table, i) for i in shown)
    measured = set(_number_columns(table))
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
