"""Summaries over seeds or draws, the units of replication."""

import xarray as xr
from scipy.special import stdtrit


def summary_over(values: xr.DataArray, dim: str = "seed") -> xr.DataArray:
    """Mean and range over seeds along a new dimension `summary`: mean, min, max. NaN stays out of all three."""
    parts = [values.mean(dim), values.min(dim), values.max(dim)]
    return xr.concat(parts, xr.DataArray(["mean", "min", "max"], dims="summary", name="summary"))


def mean_interval(values: xr.DataArray, dim: str = "draw", *, confidence: float = 0.95) -> xr.DataArray:
    """Mean over draws with the ends of Student's interval, along a new dimension `summary`: mean, low, high.

    Args:
        values: Over `dim`, and other dimensions. NaN stays out.
        dim: What is replicated.
        confidence: Of the interval.

    Returns:
        NaN ends where there are fewer than two draws.
    """
    n, mean = values.count(dim), values.mean(dim)
    error = values.std(dim, ddof=1) / n**0.5
    reach = error * stdtrit((n - 1).clip(min=1), (1 + confidence) / 2)
    ends: list[xr.DataArray] = [mean, mean - reach, mean + reach]
    return xr.concat(ends, xr.DataArray(["mean", "low", "high"], dims="summary", name="summary"))
