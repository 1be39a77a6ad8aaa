"""Planted results, as findings take them."""

import numpy as np
import xarray as xr

from mnemoscope.records import MeasuredRuns

SEEDS, SKILLS = [3, 4], ["copy", "count"]


def along(dims, shape, values, **coords):
    """An array along `seed` and more, zero but for `values` by place; the second seed has a tenth less."""
    array = xr.DataArray(np.zeros((2, *shape)), dims=("seed", *dims), coords={"seed": SEEDS, **coords})
    for place, value in values.items():
        array.loc[{"seed": SEEDS, **dict(zip(dims, place, strict=True))}] = [value, value - 0.1]
    return array


def measured(options=None, **results):
    """Results without runs."""
    return MeasuredRuns(results=results, options=options, runs=[])
