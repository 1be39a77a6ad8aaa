from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit

from mnemoscope.analyses.dynamics.change_points import change_point, fit_change
from mnemoscope.core.errors import InputError

STEPS = np.arange(0, 300, 10)
PLACES = ("position", "position_low", "position_high", "start", "end", "width", "relative_width", "before", "after")


def curves(*rows, sd=0.05, steps=STEPS):
    values = np.stack(rows) + sd * np.random.default_rng(1).standard_normal((len(rows), len(steps)))
    return xr.DataArray(values, dims=("seed", "step"), coords={"seed": range(len(rows)), "step": steps})


def test_a_step_and_a_sigmoid_are_found_where_they_were_planted():
    width = 12 * 2 * np.log(9)
    result = change_point(curves(0.2 + 0.7 * (STEPS > 118), 1 - 0.8 * expit((STEPS - 150) / 12)), n_draws=99)
    assert result.status.values.tolist() == ["change", "change"]
    step, sigmoid = result.sel(seed=0), result.sel(seed=1)
    assert 110 <= step.position <= 120
    assert (step.width_low == 0, step.relative_width < 0.15) == (True, True)
    assert float(sigmoid.position) == pytest.approx(150, abs=4)
    assert float(sigmoid.width) == pytest.approx(width, rel=0.35)
    assert sigmoid.position_low <= 150 <= sigmoid.position_high
    assert sigmoid.width_low <= width <= sigmoid.width_high
    assert float(sigmoid.relative_width) == pytest.approx(float(sigmoid.width / sigmoid.position))
    assert (float(sigmoid.before), float(sigmoid.after)) == (pytest.approx(1, abs=0.05), pytest.approx(0.2, abs=0.05))
    assert (result.explained > result.explained_by_drift).all()


def test_flat_and_drifting_series_have_no_change():
    x = STEPS / STEPS[-1]
    rows = [0 * x, 0.8 * x, -0.8 * x, 0.8 * (1 - np.exp(-5 * x)), np.log1p(9 * x), np.sqrt(x)]
    result = change_point(curves(*[row for row in rows for _ in range(4)]), n_draws=99)
    assert (result.status == "change").sum() == 0
    for name in PLACES:
        assert result[name].isnull().all()
    assert result.p.notnull().all()


def test_a_change_that_is_cut_off_is_not_reported():
    result = change_point(curves(expit((STEPS - 280) / 12), expit((STEPS - 5) / 4), sd=0.01), n_draws=99)
    assert set(result.status.values.tolist()) <= {"not seen whole", "no change"}
    assert result.position.isnull().all()


def test_constant_and_undefined_series():
    values = curves(0.5 + 0 * STEPS, expit((STEPS - 150) / 12), 0.0 * STEPS, sd=0)
    values[2, 3] = np.nan
    result = change_point(values, n_draws=99)
    assert result.status.values.tolist() == ["no change", "change", "undefined"]
    assert result.p.values.tolist()[:2] == [1, 0.01]
    assert result.isel(seed=2).drop_vars("status").to_array().isnull().all()


def test_every_series_is_treated_as_if_it_were_alone():
    values = curves(expit((STEPS - 150) / 12), STEPS > 80, 0 * STEPS)
    together = change_point(values, n_draws=39, alpha=0.05, seed=3)
    for seed in values.seed.values:
        alone = change_point(values.sel(seed=seed), n_draws=39, alpha=0.05, seed=3)
        xr.testing.assert_identical(alone, together.sel(seed=seed))


def test_two_changes_are_one_wide_one_or_none():
    """What the method does not show; its documentation says so."""
    one = expit((STEPS - 145) / 5)
    close, apart = (np.searchsorted(ends, STEPS) / 2 for ends in ((125, 165), (75, 215)))
    result = change_point(curves(one, close, apart, sd=0.01), n_draws=99)
    assert result.status.values.tolist() == ["change", "change", "no change"]
    assert result.width.sel(seed=1) > 2 * result.width.sel(seed=0)
    assert result.explained.sel(seed=1) < result.explained.sel(seed=0)


def test_log_axis_and_attributes():
    steps = np.unique(np.round(np.geomspace(1, 4000, 24)))
    values = curves(expit((np.log1p(steps) - np.log1p(250)) / 0.2), sd=0.02, steps=steps)
    result = change_point(values, axis="log", n_draws=99)
    assert float(result.position.item()) == pytest.approx(250, rel=0.1)
    assert result.attrs["definition"].startswith("least-squares sigmoid along log(1 + step)")
    assert all(isinstance(value, str | int | float) for value in result.attrs.values())
    fitted = fit(values.values[0], steps, log=True)
    assert float(result.position.item()) == fitted.position
    assert float(result.width.item()) == fitted.end - fitted.start


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        (curves(0 * STEPS), {"axis": "sqrt"}, "axis must be one of"),
        (curves(0 * STEPS), {"alpha": 0.001}, "alpha must be from 0.002 to 0.5"),
        (curves(0 * STEPS), {"confidence": 95}, "confidence must be"),
        (curves(0 * STEPS), {"n_draws": 5}, "n_draws must be"),
        (curves(0 * STEPS).isel(step=slice(7)), {}, "at least 8 steps; got 7"),
        (curves(np.zeros(1001), steps=np.arange(1001)), {}, r"at most 500 steps; got 1001; .*slice\(None, None, 3\)"),
    ],
)
def test_what_is_refused(values, arguments, message, as_installed):
    with pytest.raises(InputError, match=message):
        change_point(values, **arguments)


EVERY_TENTH = np.arange(0, 400.0, 10)


def fit(values, steps=EVERY_TENTH, *, log=False, n_draws=99):
    rng = np.random.default_rng(0)
    figures, whole = fit_change(steps, values, log=log, confidence=0.95, n_draws=n_draws, rng=rng)
    return SimpleNamespace(**figures, whole=whole)


def noise(sd, steps=EVERY_TENTH):
    return sd * np.random.default_rng(0).standard_normal(len(steps))


@pytest.mark.parametrize(("before", "after"), [(0.2, 1.0), (3.0, -1.0)])
def test_a_sigmoid_without_noise_is_found_exactly(before, after):
    change = fit(before + (after - before) * expit((EVERY_TENTH - 163) / 20))
    assert change.position == pytest.approx(163, abs=0.01)
    assert change.end - change.start == pytest.approx(20 * 2 * np.log(9), rel=1e-3)
    assert (change.before, change.after) == (pytest.approx(before, abs=1e-3), pytest.approx(after, abs=1e-3))
    assert change.explained == pytest.approx(1)
    assert (change.whole, change.p) == (True, 0.01)


def test_start_and_end_are_a_tenth_and_nine_tenths():
    change = fit(expit((EVERY_TENTH - 200) / 15))
    assert expit((change.start - 200) / 15) == pytest.approx(0.1, abs=1e-3)
    assert expit((change.end - 200) / 15) == pytest.approx(0.9, abs=1e-3)


def test_along_log_steps_the_sigmoid_is_one_of_log_steps():
    steps = np.round(np.geomspace(1, 4000, 30))
    steps = np.unique(np.append(0, steps))
    change = fit(expit((np.log1p(steps) - np.log1p(250)) / 0.2), steps, log=True)
    assert change.position == pytest.approx(250, rel=1e-3)
    half = 0.2 * np.log(9)
    assert change.start == pytest.approx(251 * np.exp(-half) - 1, rel=1e-2)
    assert change.end == pytest.approx(251 * np.exp(half) - 1, rel=1e-2)


def test_a_step_lies_between_its_two_points_and_may_be_sudden():
    values = np.where(EVERY_TENTH < 145, 0.2, 0.9) + noise(0.05)
    change = fit(values)
    assert 140 < change.position < 150
    assert change.position_low <= 140 < 150 <= change.position_high
    assert change.width_low == 0
    assert change.end - change.start <= change.width_high < 40
    assert (change.before, change.after) == (pytest.approx(0.2, abs=0.05), pytest.approx(0.9, abs=0.05))


def test_the_intervals_cover_what_was_planted():
    """Of 32, with a coverage of .95, more than 5 are missed with a probability of .005."""
    rng = np.random.default_rng(3)
    hits = np.zeros(2)
    for _ in range(32):
        middle, scale = rng.uniform(130, 260), rng.uniform(4, 20)
        shocks = rng.standard_normal(len(EVERY_TENTH))
        for i in range(1, len(shocks)):  # persistent noise: neighbours are correlated by 0.4
            shocks[i] = 0.4 * shocks[i - 1] + 0.84**0.5 * shocks[i]
        change = fit(expit((EVERY_TENTH - middle) / scale) + 0.07 * shocks, n_draws=1)
        width = scale * 2 * np.log(9)
        hits += change.position_low <= middle <= change.position_high, change.width_low <= width <= change.width_high
    assert hits.min() >= 32 - 5


def test_more_noise_widens_the_intervals():
    clear, noisy = (fit(expit((EVERY_TENTH - 163) / 20) + noise(sd)) for sd in (0.02, 0.2))
    for name in ("position", "width"):
        lengths = [getattr(change, f"{name}_high") - getattr(change, f"{name}_low") for change in (clear, noisy)]
        assert 0 < lengths[0] < lengths[1]


def test_nothing_depends_on_the_unit_of_the_values_or_of_time():
    values = expit((EVERY_TENTH - 163) / 20) + noise(0.05)
    plain, scaled, slower = fit(values), fit(1e-4 * values - 3e-4), fit(values, 1000 * EVERY_TENTH)
    for name in ("start", "position", "end", "position_low", "position_high", "width_low", "width_high"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-3, abs=0.1)
        assert getattr(slower, name) == pytest.approx(1000 * getattr(plain, name), rel=1e-3, abs=100)
    assert scaled.p == plain.p == slower.p
    assert scaled.after - scaled.before == pytest.approx(1e-4 * (plain.after - plain.before), rel=1e-3)


@pytest.mark.parametrize("middle", [-50, 0, 8, 385, 450])
def test_a_change_at_the_end_of_the_series_is_not_whole(middle):
    assert not fit(expit((EVERY_TENTH - middle) / 20) + noise(0.01)).whole


def test_steps_may_be_uneven():
    steps = np.array([0, 1, 2, 5, 9, 16, 28, 48, 83, 145, 252, 438, 761, 1324, 2301, 4000.0])
    change = fit(np.where(steps < 100, 0.1, 0.8) + noise(0.01, steps), steps, log=True)
    assert 83 < change.position < 145
    assert change.position_low <= 83 < 145 <= change.position_high
