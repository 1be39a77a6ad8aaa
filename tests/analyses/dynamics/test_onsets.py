import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.dynamics.onsets import threshold_onset
from mnemoscope.analyses.dynamics.trajectories import over_runs
from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run

STEPS = [0, 10, 20, 30, 50, 100]


def curve(values, steps=STEPS):
    return xr.DataArray(values, dims="step", coords={"step": steps})


def onset(values, threshold=0.5, **arguments):
    result = threshold_onset(curve(values), threshold, **arguments)
    return float(result.onset), float(result.after), float(result.by), str(result.status.item())


def test_the_crossing_is_interpolated_between_its_two_steps():
    assert onset([0, 0, 0.2, 0.8, 1, 1]) == (pytest.approx(25), 20, 30, "reached")
    assert onset([0, 0, 0.4, 0.8, 1, 1]) == (pytest.approx(22.5), 20, 30, "reached")


def test_a_value_at_the_threshold_counts():
    assert onset([0, 0, 0, 0.5, 1, 1]) == (30, 20, 30, "reached")


def test_log_interpolation():
    found = onset([0, 0, 0, 0, 0, 1], axis="log")
    assert found == (pytest.approx((51 * 101) ** 0.5 - 1), 50, 100, "reached")
    assert onset([0, 1, 1, 1, 1, 1], axis="log")[0] == pytest.approx(11**0.5 - 1)


def test_it_has_to_stay():
    up_and_down = [0, 1, 0, 0, 0.5, 1]
    assert onset(up_and_down)[3] == "reached"
    assert onset(up_and_down)[2] == 50
    assert onset(up_and_down, hold=1)[:3] == (5, 0, 10)
    assert onset(up_and_down, hold=2)[2] == 50
    assert onset([0, 1, 1, 0, 0, 0], hold=2)[2] == 10
    assert onset([0, 1, 1, 0, 0, 0], hold=3)[3] == "never"


def test_what_is_too_short_to_be_held_is_no_onset():
    assert onset([0, 0, 0, 0, 0, 1], hold=2)[3] == "never"
    assert onset([0, 0, 0, 0, 0, 1])[2] == 100  # nothing follows the last step that it could fall back at


def test_falling_is_rising_upside_down():
    values = np.array([0, 0.1, 0.4, 0.8, 0.7, 1])
    assert onset(2 - values, 1.5, direction="fall")[:3] == pytest.approx(onset(values, 0.5)[:3])
    assert onset(2 - values, 1.5, direction="rise")[3] == "never"


def test_censored_and_undefined_series_are_counted():
    values = xr.DataArray(
        [[[0, 0, 1], [0, 0, 0.4]], [[1, 0.9, 0.8], [0, np.nan, 1]], [[0, np.inf, 1], [np.nan] * 3]],
        dims=("seed", "skill", "step"),
        coords={"seed": [3, 4, 5], "skill": ["elimination", "recall"], "step": [0, 10, 20]},
    )
    result = threshold_onset(values, 0.5)
    assert result.status.sel(skill="elimination").values.tolist() == ["reached", "from the start", "undefined"]
    assert result.status.sel(skill="recall").values.tolist() == ["never", "undefined", "undefined"]
    np.testing.assert_array_equal(result.onset.sel(skill="elimination"), [15, 0, np.nan])
    assert result.onset.sel(skill="recall").isnull().all()
    assert np.isnan(result.after.sel(seed=4, skill="elimination"))
    assert (result.status == "never").sum("seed").values.tolist() == [0, 1]
    for index in ({"seed": 3, "skill": "elimination"}, {"seed": 4, "skill": "elimination"}):
        xr.testing.assert_identical(threshold_onset(values.sel(index), 0.5), result.sel(index))


def test_the_definition_is_in_the_attributes():
    attrs = threshold_onset(curve([0] * 6), 0.99, hold=3, axis="log").attrs
    assert attrs["definition"] == "first step from which the value is at least 0.99, for 3 in a row"
    assert attrs["interpolation"] == "straight in log(1 + step)"
    assert all(isinstance(value, str | int | float) for value in attrs.values())


def test_curves_of_a_run(tiny):
    loss = over_runs([tiny], Run.metrics).train_loss
    threshold = float(loss.isel(seed=0, step=[1, 2]).mean())
    result = threshold_onset(loss, threshold, direction="fall", hold=1)
    after, by = (float(loss.sel(seed=0, step=result[name].item())) for name in ("after", "by"))
    assert after > threshold >= by
    assert result.after < result.onset <= result.by


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"direction": "up"}, "direction must be one of: rise, fall"),
        ({"axis": "sqrt"}, "axis must be one of: linear, log"),
        ({"hold": 0}, "hold must be from 1 to 6; got 0"),
        ({"hold": 7}, "hold must be from 1 to 6; got 7"),
        ({"threshold": float("nan")}, "threshold must be"),
    ],
)
def test_what_is_refused(arguments, message, as_installed):
    with pytest.raises(InputError, match=message):
        threshold_onset(curve([0] * 6), **{"threshold": 0.5, **arguments})
