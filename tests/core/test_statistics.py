"""Summaries over draws."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mnemoscope.core import mean_interval
from mnemoscope.core.numerics import difference_interval


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


def test_differences_of_replicates_that_both_have_are_paired():
    one = xr.DataArray([1.0, 2.0, 4.0, 9.0], dims="seed", coords={"seed": [0, 1, 2, 7]})
    other = xr.DataArray([3.0, 2.5, 2.0, 5.0], dims="seed", coords={"seed": [2, 1, 0, 8]})
    found = difference_interval(one, other)
    low, high = stats.ttest_1samp([1.0, 0.5, -1.0], 0).confidence_interval(0.95)
    assert found.values == pytest.approx([1 / 6, low, high])
    assert found.attrs == {"paired": 3, "interval": 1}


def test_differences_of_others_are_those_of_independent_samples():
    one = xr.DataArray([1.0, 2.0, 4.0], dims="seed", coords={"seed": [0, 1, 2]})
    other = xr.DataArray([3.0, 9.0, 2.0, 5.0], dims="seed", coords={"seed": [2, 3, 4, 5]})
    found = difference_interval(one, other)
    low, high = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
    assert found.values == pytest.approx([4.75 - 7 / 3, low, high])
    assert found.attrs == {"paired": 0, "interval": 1}
    same = difference_interval(one * 0, other * 0)
    assert same.values.tolist() == [0, 0, 0]


def test_a_single_replicate_gives_a_difference_without_an_interval():
    one = xr.DataArray([1.0], dims="seed", coords={"seed": [0]})
    other = xr.DataArray([3.0, 9.0], dims="seed", coords={"seed": [0, 1]})
    found = difference_interval(one, other)
    assert float(found.sel(summary="mean")) == 5
    assert found.sel(summary=["low", "high"]).isnull().all()
    assert found.attrs == {"paired": 0, "interval": 0}
