"""Results to rows of text, as the terminal, CSV files and the report show them.

A cell that was rounded from numbers is a text that keeps them (`Number`), so that files of numbers can be written from
every table (`report.tidy`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import xarray as xr

from mnemoscope.core.errors import counted as counted
from mnemoscope.core.errors import ranges as ranges
from mnemoscope.core.errors import rounded as rounded
from mnemoscope.core.numerics import summary_over

Results = Mapping[str, xr.Dataset]


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


def spread(values: xr.DataArray, form: str = ".4f") -> Number:
    """Mean over replicates (the only dimension), with the range if there are several; a dash where there is nothing."""
    (dim,) = (str(dim) for dim in values.dims)
    summary = summary_over(values, dim)
    mean, low, high = (float(summary.sel(summary=name)) for name in ("mean", "min", "max"))
    n = int(values.notnull().sum())
    if math.isnan(mean):
        return Number("–", mean=mean, n=n, each=values)
    if values.size == 1:
        return Number(rounded(mean, form), mean=mean, n=n, each=values)
    text = f"{rounded(mean, form)} [{rounded(low, form)}, {rounded(high, form)}]"
    return Number(text, mean=mean, low=low, high=high, interval="range", n=n, each=values)


def interval(
    mean: float, low: float, high: float, form: str = ".3f", *, n: int | None = None, each: xr.DataArray | None = None
) -> Number:
    """A mean with the ends of its 95 % interval; arguments as of `Number`."""
    text = f"{rounded(mean, form)} [{rounded(low, form)}, {rounded(high, form)}]"
    return Number(text, mean=mean, low=low, high=high, interval="95 %", n=n, each=each)


def single(value: float, form: str = ".4f") -> Number:
    """A number that is no mean over replicates."""
    return Number(rounded(value, form), mean=value)
