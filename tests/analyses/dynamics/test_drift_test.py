import numpy as np
import pytest
from scipy.signal import lfilter

from mnemoscope.analyses.dynamics.drift_test import best_drift, candidates, drift_p, left_over, persistence
from tests.support import global_generators_untouched

N = 24
X = np.linspace(0, 1, N)
SHAPES = candidates(X)


def p(values, seed=0, n_draws=59):
    return drift_p(SHAPES, values, n_draws=n_draws, rng=np.random.default_rng(seed))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "drift",
    [0 * X, 5 * X, -3 * X, 5 * (1 - np.exp(-6 * X)), np.exp(3 * X), np.log1p(20 * X), 4 * np.sqrt(X)],
    ids=["flat", "line", "falling line", "saturating", "growing", "logarithm", "root"],
)
def test_false_alarms_on_drifts_are_as_rare_as_stated(drift):
    """Of 200, at a true rate of .05, more than 20 have a probability of .001."""
    rng = np.random.default_rng(0)
    alarms = sum(p(drift + rng.standard_normal(N), seed) <= 0.05 for seed in range(200))
    assert alarms <= 20


@pytest.mark.thorough
def test_a_slow_wander_is_no_change():
    """Shuffling would call most of these changes."""
    shocks = np.random.default_rng(0).standard_normal((200, N + 50))
    wanders = lfilter([1], [1, -0.7], shocks, axis=-1)[:, 50:]
    assert sum(p(row, seed) <= 0.05 for seed, row in enumerate(wanders)) <= 20


@pytest.mark.parametrize(
    "drift", [3 * X, 5 * (1 - np.exp(-6.3 * X)), np.exp(2 * X), np.log1p(20 * X), np.sqrt(X), 1 / (1 + 9 * X)]
)
def test_a_drift_without_noise_is_no_change(drift):
    assert p(drift) > 0.05


@pytest.mark.parametrize("rate", [-20.0, -2.34, 0.0, 0.9, 11.0])
def test_an_exponential_is_found_off_the_grid(rate):
    drift = X if rate == 0 else np.exp(rate * X)
    assert left_over(best_drift(SHAPES, drift)[None], drift) / np.square(drift - drift.mean()).sum() < 1e-9


def test_steps_stand_out():
    rng = np.random.default_rng(0)
    step = np.where(X < 0.4, 0.0, 5.0)
    found = [p(step + rng.standard_normal(N), seed) <= 0.05 for seed in range(50)]
    assert np.mean(found) > 0.9
    assert p(step) == 1 / 60
    assert p(step + 3 * X + 0.1 * rng.standard_normal(N)) == 1 / 60  # on top of a drift


def test_the_same_seed_gives_the_same_p_and_no_global_generator_moves():
    values = np.random.default_rng(1).standard_normal(N)
    with global_generators_untouched():
        first = p(values, 0)
    assert first == p(values, 0)
    assert first != p(values, 1)


def test_persistence_by_hand():
    assert persistence(np.array([1.0, -1.0, 1.0, -1.0])) == 0
    assert persistence(np.array([1.0, 1.0, -1.0, -1.0])) == pytest.approx(1 / 4)
    assert persistence(np.linspace(-1, 1, 1000)) == 0.95
    assert persistence(np.zeros(4)) == 0


def test_what_the_best_shape_leaves_over_is_what_least_squares_leaves_over():
    values = np.random.default_rng(2).standard_normal(N)
    every = [np.polyfit(shape, values, 1, full=True)[1][0] for shape in SHAPES.drifts]
    assert left_over(SHAPES.drifts, values) == pytest.approx(min(every))
    assert left_over(SHAPES.drifts, np.stack([values, 2 * values])) == pytest.approx([min(every), 4 * min(every)])


def test_candidates_run_from_a_sudden_step_to_the_whole_length():
    flat = np.tile(np.array([-1.0, 1.0]), (2, 1))
    shapes = candidates(np.arange(20.0))
    assert np.abs(shapes.changes.mean(-1)).max() < 1e-12
    assert np.linalg.norm(shapes.changes, axis=-1) == pytest.approx(1)
    sharpest = shapes.changes[len(shapes.mids) // 2, 0]
    assert len(np.unique(sharpest.round(6))) == len(flat)
    assert (shapes.mids.min() > 1, shapes.mids.max() < 18) == (True, True)
    assert shapes.scales[-1] * 2 * np.log(9) == pytest.approx(19)
