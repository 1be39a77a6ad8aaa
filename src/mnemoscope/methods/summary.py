"""The table of methods: means over families of known circuits, with intervals.

The value of a family is the mean over its circuits (a program with its noised and padded variants), over their draws of
noise and over draws of pairs. An interval is the percentile bootstrap of the mean over families
(`scipy.stats.bootstrap`), so that it holds the spread of variants, noise and prompts within families too;
`components` says how much each adds. It does not hold families unlike those tried. With few families it is too narrow;
of fewer than `MIN_FAMILIES` none is given. *Over random*: the mean difference from random scores, family by family.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import stats

from mnemoscope.core.seeding import stream_seed
from mnemoscope.methods.trial import MEASURES

MIN_FAMILIES = 5
"""Fewer families give no interval."""
N_RESAMPLES = 2000
CONTROL = "random"


def by_family(tried: xr.DataTree) -> xr.Dataset:
    """Measures, mean over the circuits of a family and over draws, over (family, finder) and what else they have."""
    found: dict[str, dict[str, list[xr.Dataset]]] = {}
    for child in tried.children.values():
        each = child.to_dataset()
        measured = each[[*MEASURES, "faithfulness"]].mean("draw").drop_attrs()
        found.setdefault(each.attrs["family"], {}).setdefault(each.attrs["circuit"], []).append(measured)
    means = [
        xr.concat([xr.concat(draws, "noise").mean("noise") for draws in circuits.values()], "circuit").mean("circuit")
        for circuits in found.values()
    ]
    return xr.concat(means, "family").assign_coords(
        family=list(found), n_circuits=("family", [len(circuits) for circuits in found.values()])
    )


def summarise(tried: xr.DataTree, *, seed: int = 0) -> xr.Dataset:
    """Means over families with 95 % intervals.

    Returns every measure over finder and what else it has; with `bound` (mean, low, high); `over_random` for AUROC
    likewise; `n_families` and `n_circuits` that a method takes, over finder.

    >>> found = ms.methods.summarise(ms.methods.try_methods(["induction"], ["eap", "random"], n=8, n_draws=1))
    >>> found.auroc.dims
    ('bound', 'finder', 'ranking')
    """
    families = by_family(tried)
    result = {name: _with_interval(families[name], seed) for name in (*MEASURES, "faithfulness")}
    if CONTROL in families.finder:
        result["over_random"] = _with_interval(families.auroc - families.auroc.sel(finder=CONTROL, drop=True), seed)
    children = [child.to_dataset() for child in tried.children.values()]
    takes = xr.concat([_takes(child) for child in children if not child.attrs["noise"]], "circuit")
    return xr.Dataset(
        {
            **result,
            "n_families": families.seconds.notnull().sum("family"),
            "n_circuits": takes.sum("circuit"),
        },
        attrs={
            "interval": f"95 %, percentile bootstrap over families, {N_RESAMPLES} resamples",
            "n_families": families.sizes["family"],
            "n_circuits": takes.sizes["circuit"],
            "n_draws": children[0].sizes["draw"],
            "n_noise": 1 + max(child.attrs["noise"] for child in children),
            "n": children[0].attrs["n"],
        },
    )


def _takes(found: xr.Dataset) -> xr.DataArray:
    """True for methods that take a circuit."""
    return found.seconds.notnull().any("draw").drop_attrs()


def _with_interval(values: xr.DataArray, seed: int) -> xr.DataArray:
    """Mean, low and high over families."""
    moved = values.transpose("family", ...)
    flat = moved.to_numpy().reshape(moved.sizes["family"], -1)
    found = np.array([_interval(column[~np.isnan(column)], seed) for column in flat.T])
    rest = moved.isel(family=0, drop=True)
    found = found.T.reshape(3, *rest.shape)
    return xr.DataArray(found, dims=("bound", *rest.dims), coords={"bound": ["mean", "low", "high"], **rest.coords})


def _interval(values: Float[np.ndarray, " family"], seed: int) -> Sequence[float]:
    """Mean, low and high of one measure; NaN where too few families have it."""
    if len(values) < MIN_FAMILIES:
        return (values.mean() if len(values) else np.nan, np.nan, np.nan)
    if np.ptp(values) == 0:
        return (values[0],) * 3
    draws = np.random.default_rng(stream_seed(seed, "families"))
    ends = stats.bootstrap((values,), np.mean, n_resamples=N_RESAMPLES, method="percentile", rng=draws)
    return (values.mean(), *ends.confidence_interval)
