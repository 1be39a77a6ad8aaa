"""Results to rows of text: what the terminal, CSV files and the report show alike."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import xarray as xr

from mnemoscope.core.statistics import summary_over

Results = Mapping[str, xr.Dataset]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text; `name` is the file's, the first `n_text` columns are text."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_text: int = 1


def counted(n: int, thing: str) -> str:
    """How many there are, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in words, such as `0–3, 7`."""
    found = []
    for _, members in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in members]
        found.append(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}")
    return ", ".join(found)


def rounded(value: float, form: str = ".4f") -> str:
    """A number in a format such as `.2f` or `+.3g`; what is rounded to zero has no minus."""
    sign = form[:1] if form[:1] in "+- " else ""
    return f"{value:{sign}z{form.removeprefix(sign)}}"


BAR = 24
"""Characters of a full bar."""


def bar(share: float) -> str:
    """A share as a bar of text."""
    filled = round(share * BAR)
    return "█" * filled + "·" * (BAR - filled)


def spread(values: xr.DataArray, form: str = ".4f") -> str:
    """Mean over seeds, with the range behind it where there are several; a dash where there is nothing."""
    summary = summary_over(values)
    mean, low, high = (float(summary.sel(summary=name)) for name in ("mean", "min", "max"))
    if math.isnan(mean):
        return "–"
    range_ = f" [{rounded(low, form)}, {rounded(high, form)}]" if values.size > 1 else ""
    return rounded(mean, form) + range_
