r"""Growth of capacity with the number of parameters: slopes of lines through logarithms.

The published line is :math:`N \log N = c P` for P parameters: log(N ln N) against log P has slope 1. Without the
logarithm, log N against log P has slope 1; if capacity grew like the width of a matrix, 1/2. Each draw has slopes of
its own, by least squares over its sizes, and their mean has an interval over draws (`mnemoscope.core.mean_interval`):
the residuals of one line, which share embeddings and bend, say nothing about it.

*Does not show* that the law is a power law: over a factor of 64 in parameters, N and N log N are told apart by slopes
that differ by about .2.
"""

import math

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope import InputError

LAW, PLAIN = "N log N", "N"
"""Functions of capacity that are fitted to the number of parameters."""


def law_capacity(parameters: float, *, share: float = 1.0) -> float:
    """N with N ln N a share of the parameters, by Newton's method; that share must be positive."""
    if not share * parameters > 0:
        raise InputError(f"share * parameters must be positive; got {share * parameters!r}")
    n = math.e
    for _ in range(50):
        n -= (n * math.log(n) - share * parameters) / (math.log(n) + 1)
    return n


def amounts(capacity: xr.DataArray) -> xr.DataArray:
    """N ln N and N along a new dimension `law`; N ln N is 0 for N = 1."""
    both = [capacity * np.log(capacity.clip(min=1)), capacity]
    return xr.concat(both, xr.DataArray([LAW, PLAIN], dims="law", name="law"))


def growth(capacity: xr.DataArray, parameters: xr.DataArray) -> xr.Dataset:
    """Slopes of every draw; capacities are over a dimension of sizes, such as d, and draw.

    `slope` and `intercept` (at one parameter, natural logarithm) are over law and draw; NaN for a draw that stores
    fewer than two associations somewhere. Raises InputError without two different sizes.
    """
    (size,) = parameters.dims
    if len(np.unique(parameters)) < 2:
        raise InputError(f"parameters must differ between at least two sizes; got {parameters.values.tolist()}")
    logs = amounts(capacity).transpose("law", "draw", size)
    lines = [[_line(parameters.values.astype(float), row) for row in law] for law in logs.values]
    slope, intercept = np.moveaxis(np.array(lines), -1, 0)
    coords = {"law": logs.law.values, "draw": logs.draw.values}
    data = {"slope": (("law", "draw"), slope), "intercept": (("law", "draw"), intercept)}
    attrs = {"unit": "slope of natural logarithms", "fit": "least squares, each draw by itself"}
    return xr.Dataset(data, coords=coords, attrs=attrs)


def _line(parameters: Float[np.ndarray, " size"], amount: Float[np.ndarray, " size"]) -> tuple[float, float]:
    if (amount <= 0).any():
        return np.nan, np.nan
    slope, intercept = np.polyfit(np.log(parameters), np.log(amount), 1)
    return float(slope), float(intercept)
