import numpy as np
import pytest
from scipy.special import expit

from mnemoscope.analyses.dynamics.changepoint import fit_change

STEPS = np.arange(0, 400.0, 10)


def fit(values, steps=STEPS, *, log=False, n_draws=99):
    return fit_change(steps, values, log=log, confidence=0.95, n_draws=n_draws, rng=np.random.default_rng(0))


def noise(sd, steps=STEPS):
    return sd * np.random.default_rng(0).standard_normal(len(steps))


@pytest.mark.parametrize(("before", "after"), [(0.2, 1.0), (3.0, -1.0)])
def test_a_sigmoid_without_noise_is_found_exactly(before, after):
    change = fit(before + (after - before) * expit((STEPS - 163) / 20))
    assert change.position == pytest.approx(163, abs=0.01)
    assert change.end - change.start == pytest.approx(20 * 2 * np.log(9), rel=1e-3)
    assert (change.before, change.after) == (pytest.approx(before, abs=1e-3), pytest.approx(after, abs=1e-3))
    assert change.explained == pytest.approx(1)
    assert (change.whole, change.p) == (True, 0.01)


def test_start_and_end_are_a_tenth_and_nine_tenths():
    change = fit(expit((STEPS - 200) / 15))
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
    values = np.where(STEPS < 145, 0.2, 0.9) + noise(0.05)
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
        shocks = rng.standard_normal(len(STEPS))
        for i in range(1, len(shocks)):  # persistent noise: neighbours are correlated by 0.4
            shocks[i] = 0.4 * shocks[i - 1] + 0.84**0.5 * shocks[i]
        change = fit(expit((STEPS - middle) / scale) + 0.07 * shocks, n_draws=1)
        width = scale * 2 * np.log(9)
        hits += change.position_low <= middle <= change.position_high, change.width_low <= width <= change.width_high
    assert hits.min() >= 32 - 5


def test_more_noise_widens_the_intervals():
    clear, noisy = (fit(expit((STEPS - 163) / 20) + noise(sd)) for sd in (0.02, 0.2))
    for name in ("position", "width"):
        lengths = [getattr(change, f"{name}_high") - getattr(change, f"{name}_low") for change in (clear, noisy)]
        assert 0 < lengths[0] < lengths[1]


def test_nothing_depends_on_the_unit_of_the_values_or_of_time():
    values = expit((STEPS - 163) / 20) + noise(0.05)
    plain, scaled, slower = fit(values), fit(1e-4 * values - 3e-4), fit(values, 1000 * STEPS)
    for name in ("start", "position", "end", "position_low", "position_high", "width_low", "width_high"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-3, abs=0.1)
        assert getattr(slower, name) == pytest.approx(1000 * getattr(plain, name), rel=1e-3, abs=100)
    assert scaled.p == plain.p == slower.p
    assert scaled.after - scaled.before == pytest.approx(1e-4 * (plain.after - plain.before), rel=1e-3)


@pytest.mark.parametrize("middle", [-50, 0, 8, 385, 450])
def test_a_change_at_the_end_of_the_series_is_not_whole(middle):
    assert not fit(expit((STEPS - middle) / 20) + noise(0.01)).whole


def test_steps_may_be_uneven():
    steps = np.array([0, 1, 2, 5, 9, 16, 28, 48, 83, 145, 252, 438, 761, 1324, 2301, 4000.0])
    change = fit(np.where(steps < 100, 0.1, 0.8) + noise(0.01, steps), steps, log=True)
    assert 83 < change.position < 145
    assert change.position_low <= 83 < 145 <= change.position_high
