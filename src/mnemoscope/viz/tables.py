"""Results to rows of text: what the terminal, CSV files and the report show alike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from mnemoscope.core.statistics import summary_over
from mnemoscope.viz.numbers import counted as counted
from mnemoscope.viz.numbers import rounded as rounded

Results = Mapping[str, xr.Dataset]


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


def spread(values: xr.DataArray, form: str = ".4f") -> str:
    """Mean over seeds, with the range behind it where there are several; a dash where there is nothing."""
    summary = summary_over(values)
    mean, low, high = (float(summary.sel(summary=name)) for name in ("mean", "min", "max"))
    if math.isnan(mean):
        return "–"
    range_ = f" [{rounded(low, form)}, {rounded(high, form)}]" if values.size > 1 else ""
    return rounded(mean, form) + range_
