"""Summaries over seeds, the unit of replication."""

import xarray as xr


def summary_over(values: xr.DataArray, dim: str = "seed") -> xr.DataArray:
    """Mean and range over seeds along a new dimension `summary`: mean, min, max. NaN stays out of all three."""
    parts = [values.mean(dim), values.min(dim), values.max(dim)]
    return xr.concat(parts, xr.DataArray(["mean", "min", "max"], dims="summary", name="summary"))
