"""Summaries over seeds or draws, the units of replication."""

import xarray as xr
from scipy.special import stdtrit


def summary_over(values: xr.DataArray, dim: str = "seed") -> xr.DataArray:
    """Mean and range over seeds along a new dimension `summary`: mean, min, max. NaN stays out of all three."""
    parts = [values.mean(dim), values.min(dim), values.max(dim)]
    return xr.concat(parts, xr.DataArray(["mean", "min", "max"], dims="summary", name="summary"))


def mean_interval(values: xr.DataArray, dim: str = "draw", *, confidence: float = 0.95) -> xr.DataArray:
    """Mean over draws with the ends of Student's interval, along a new dimension `summary`: mean, low, high.

    NaN stays out. The ends are NaN where there are fewer than two draws.
    """
    n, mean = values.count(dim), values.mean(dim)
    error = values.std(dim, ddof=1) / n**0.5
    reach = error * stdtrit((n - 1).clip(min=1), (1 + confidence) / 2)
    ends: list[xr.DataArray] = [mean, mean - reach, mean + reach]
    return xr.concat(ends, xr.DataArray(["mean", "low", "high"], dims="summary", name="summary"))


def difference_interval(
    one: xr.DataArray, other: xr.DataArray, dim: str = "seed", *, confidence: float = 0.95
) -> xr.DataArray:
    """Mean difference, `other` minus `one`, with the ends of Student's interval along `summary`: mean, low, high.

    Replicates that both have are paired if there are at least two of them; others are left out then. Otherwise the two
    are independent samples of unlike variance (Welch, Biometrika 1947). NaN stays out. Ends are NaN where one of the
    two has a single replicate. The attrs have `paired`, the number of pairs, and `interval`, 1 if there are ends and
    else 0.
    """
    shared = [each for each in one[dim].values.tolist() if each in other[dim].values.tolist()]
    if len(shared) > 1:
        change = other.sel({dim: shared}) - one.sel({dim: shared})
        return mean_interval(change, dim, confidence=confidence).assign_attrs(paired=len(shared), interval=1)
    mean = other.mean(dim) - one.mean(dim)
    errors = [each.var(dim, ddof=1) / each.count(dim) for each in (one, other)]
    total = errors[0] + errors[1]
    parts = [error**2 / (each.count(dim) - 1).clip(min=1) for error, each in zip(errors, (one, other), strict=True)]
    degrees = (total**2 / (parts[0] + parts[1])).where(total > 0, 1)
    reach = total**0.5 * stdtrit(degrees, (1 + confidence) / 2)
    ends: list[xr.DataArray] = [mean, mean - reach, mean + reach]
    found = xr.concat(ends, xr.DataArray(["mean", "low", "high"], dims="summary", name="summary"))
    return found.assign_attrs(paired=0, interval=int(min(one.sizes[dim], other.sizes[dim]) > 1))
