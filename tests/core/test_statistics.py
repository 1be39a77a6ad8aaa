"""Summaries over draws."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mnemoscope.core import mean_interval


def test_the_interval_of_a_mean_is_students():
    values = xr.DataArray([0.9, 1.0, 1.1, 1.4], dims="draw")
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values).values == pytest.approx([1.1, low, high])
    assert mean_interval(values.rename(draw="seed"), "seed").summary.values.tolist() == ["mean", "low", "high"]


def test_what_is_missing_stays_out_and_one_draw_has_no_ends():
    values = xr.DataArray([[1.0, 3.0, np.nan], [2.0, np.nan, np.nan]], dims=("law", "draw"))
    found = mean_interval(values)
    assert found.sel(summary="mean").values.tolist() == [2.0, 2.0]
    low, high = stats.ttest_1samp([1.0, 3.0], 0).confidence_interval(0.95)
    assert found.isel(law=0).values[1:] == pytest.approx([low, high])
    assert found.isel(law=1).sel(summary=["low", "high"]).isnull().all()
