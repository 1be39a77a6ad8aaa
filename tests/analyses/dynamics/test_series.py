import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.dynamics.series import series
from mnemoscope.core.errors import InputError

VALUES = xr.DataArray(
    np.arange(12.0).reshape(2, 3, 2),
    dims=("seed", "step", "skill"),
    coords={"seed": [4, 7], "step": [0, 10, 30], "skill": ["elimination", "recall"]},
)


def test_rows_and_back():
    found = series(VALUES, at_least=3)
    assert found.steps.tolist() == [0, 10, 30]
    assert found.rows.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    last = found.labelled([{"last": row[-1], "word": f"{row[-1]:g}"} for row in found.rows])
    xr.testing.assert_equal(last["last"], VALUES.isel(step=-1, drop=True).rename("last"))
    assert last.word.sel(seed=7, skill="recall") == "11"


def test_a_single_series_and_truth_values():
    found = series(VALUES.sel(seed=4, skill="recall") > 2, at_least=1)
    assert found.rows.tolist() == [[0, 1, 1]]
    assert found.labelled([{"n": 1}]).n.dims == ()


def test_which_rows_are_defined():
    values = VALUES.where(VALUES != 3).where(VALUES != 6, np.inf)
    assert series(values, at_least=1).defined.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VALUES.rename(step="epoch"), "need a dimension step"),
        (VALUES.drop_vars("step"), "need a dimension step"),
        (VALUES.isel(step=[1, 0, 2]), "ascend"),
        (VALUES.isel(step=[1, 1, 2]), "ascend"),
        (VALUES.assign_coords(step=[-1, 0, 1]), "from 0"),
        (VALUES, "at least 4 steps; got 3"),
    ],
)
def test_what_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        series(values, at_least=4)
