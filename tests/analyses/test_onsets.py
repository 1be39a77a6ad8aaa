import numpy as np
import pytest
import xarray as xr
from scipy.stats import friedmanchisquare

from mnemoscope.analyses.onsets import order_of_onsets, series, threshold_onset
from mnemoscope.analyses.stacking import along_seed
from mnemoscope.core.errors import InputError

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
    loss = along_seed([tiny], [tiny.metrics()]).train_loss
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
def test_what_is_refused_series(values, message):
    with pytest.raises(InputError, match=message):
        series(values, at_least=4)


NAN = float("nan")


def onsets(values, seeds=None):
    return xr.DataArray(values, dims="seed", coords={"seed": range(len(values)) if seeds is None else seeds})


def counts(result, first, second):
    pair = result.sel(first=first, second=second)
    return tuple(int(pair[name]) for name in ("before", "tie", "neither"))


def test_pairs_ties_and_censored_seeds_by_hand():
    result = order_of_onsets(
        {"elimination": onsets([50, 60, 70, 100, NAN, NAN]), "recall": onsets([300, NAN, 60, 100, 20, NAN])}
    )
    assert counts(result, "elimination", "recall") == (2, 1, 1)  # seeds 0 and 1; 3; 5
    assert counts(result, "recall", "elimination") == (2, 1, 1)  # seeds 2 and 4
    assert float(result.share.sel(first="elimination", second="recall")) == pytest.approx(2 / 6)
    assert result.never.sel(event="recall") == 2
    assert result.order.values.tolist() == [
        "elimination < recall",
        "elimination; never: recall",
        "recall < elimination",
        "elimination = recall",
        "recall; never: elimination",
        "never: elimination, recall",
    ]


def test_an_order_that_all_seeds_share():
    times = {"W_O": [10] * 16, "W_K2": [20 + n for n in range(16)], "W_K1": [40] * 16}
    result = order_of_onsets({name: onsets(values) for name, values in times.items()})
    assert (result.commonest_order, result.commonest_share, result.concordance) == ("W_O < W_K2 < W_K1", 1, 1)
    first = result.sel(first="W_O", second="W_K1")
    assert (first.share, first.high) == (1, 1)
    assert float(first.low) == pytest.approx(0.025 ** (1 / 16))  # Clopper-Pearson at n of n
    assert result.share.sel(first="W_K1", second="W_O") == 0
    assert result.attrs["n"] == 16


def test_the_diagonal_says_nothing():
    result = order_of_onsets({"a": onsets([1.0, NAN]), "b": onsets([2.0, 3.0])})
    for name, nothing in (("before", 0), ("tie", 0), ("neither", 0)):
        assert np.diag(result[name]).tolist() == [nothing] * 2
    assert np.isnan(np.diag(result.share)).all()


def test_onsets_closer_than_the_checkpoints_are_a_tie():
    times = {"a": onsets([100, 100, 100]), "b": onsets([120, 125, 126])}
    assert counts(order_of_onsets(times), "a", "b") == (3, 0, 0)
    close = order_of_onsets(times, within=25)
    assert counts(close, "a", "b") == (1, 2, 0)
    assert close.order.values.tolist() == ["a = b", "a = b", "a < b"]
    assert (close.commonest_order, float(close.commonest_share)) == ("a = b", pytest.approx(2 / 3))


def test_concordance_is_that_of_friedman():
    times = np.random.default_rng(0).integers(0, 6, (12, 4)).astype(float)  # with ties
    result = order_of_onsets({name: onsets(times[:, i]) for i, name in enumerate("abcd")})
    assert float(result.concordance) == pytest.approx(friedmanchisquare(*times.T).statistic / (12 * 3))


def test_concordance_of_two_events():
    """(before - after)^2 / n^2 without ties: 7 of 8 against 1 of 8."""
    result = order_of_onsets({"a": onsets([1] * 7 + [3]), "b": onsets([2] * 8)})
    assert float(result.concordance) == pytest.approx((6 / 8) ** 2)
    assert np.isnan(order_of_onsets({"a": onsets([1, 1]), "b": onsets([1, 1])}).concordance)


def test_seeds_without_an_order_in_common_have_a_low_concordance():
    times = np.random.default_rng(0).random((200, 5))
    result = order_of_onsets({name: onsets(times[:, i]) for i, name in enumerate("abcde")})
    assert float(result.concordance) < 0.05
    shares = result.share.values[~np.eye(5, dtype=bool)]
    assert np.abs(shares - 0.5).max() < 0.15


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"a": onsets([1.0])}, "at least two events; got 1"),
        ({"a": onsets([1.0, 2.0]), "b": onsets([1.0])}, "those of b are over others"),
        ({"a": onsets([1.0, 2.0]), "b": onsets([1.0, 2.0], [1, 0])}, "those of b are over others"),
        ({"a": onsets([1.0, 2.0], [4, 4]), "b": onsets([1.0, 2.0], [4, 4])}, "each once"),
        ({"a": onsets([1.0]).rename(seed="run"), "b": onsets([1.0])}, "onsets of a must be over seed"),
        ({"a": onsets([]), "b": onsets([])}, "onsets of a must be over seed"),
    ],
)
def test_what_is_refused_onset_order(events, message):
    with pytest.raises(InputError, match=message):
        order_of_onsets(events)
