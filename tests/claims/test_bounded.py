import numpy as np
import pytest
from scipy import stats

from mnemoscope.claims.bounded import limits_within, p_mean_above, p_mean_below

ONE = (0.0, 1.0)


@pytest.mark.parametrize(("n", "k", "bound"), [(5, 5, 0.99), (16, 14, 0.5), (16, 16, 0.2), (100, 60, 0.5)])
def test_of_zeros_and_ones_it_is_the_binomial_tail(n, k, bound):
    values = (np.arange(n) < k).astype(float)[None]
    assert p_mean_above(values, bound, ONE) == pytest.approx(stats.binom.sf(k - 1, n, bound), rel=0.06)
    assert p_mean_below(values, bound, ONE) == pytest.approx(stats.binom.cdf(k, n, bound), rel=0.06)


@pytest.mark.parametrize("bound", [0.4, 0.5, 0.66])
def test_it_is_the_tail_of_gaffkes_weighted_mean(bound):
    rng = np.random.default_rng(0)
    values = rng.beta(2, 1, 12)
    weights = rng.dirichlet(np.ones(13), 200_000)
    drawn = (weights @ np.r_[values, 0.0] <= bound).mean()
    assert p_mean_above(values[None], bound, ONE)[0] == pytest.approx(drawn, rel=0.1)
    mirrored = p_mean_below(1 - values[None], 1 - bound, ONE)
    assert p_mean_above(values[None], bound, ONE) == pytest.approx(mirrored)


def test_without_a_bound_on_the_side_of_the_unseen_nothing_is_shown():
    values = np.full((1, 16), 5.0) + np.arange(16) / 100
    assert p_mean_above(values, 0.0, (-np.inf, np.inf)) == 1
    assert p_mean_below(values, 9.0, (0.0, np.inf)) == 1
    assert p_mean_above(values, 1.0, (0.0, np.inf)) < 1e-9
    assert p_mean_above(values, -1.0, (0.0, np.inf)) == 0


@pytest.mark.parametrize("shift", [0.0, 1e-7, 1e-3])
def test_it_is_smooth_where_the_saddlepoint_has_no_slope(shift):
    """With one value more at 0 their mean is the bound: P(E / 2 > G / 100), E and G of shapes 1 and 50, by hand."""
    values = np.full((1, 50), 0.51 + shift)
    assert p_mean_above(values, 0.5, ONE)[0] == pytest.approx((1 + (0.01 + shift) / 0.5) ** -50, rel=0.02)


def test_limits_are_those_that_values_suggest():
    assert limits_within(np.array([-0.1, 0.5])) == (-1, 1)
    assert limits_within(np.array([0.1, 5.0])) == (0, np.inf)
    assert limits_within(np.array([-3.0, -0.1])) == (-np.inf, 0)
    assert limits_within(np.array([-3.0, 2.0])) == (-np.inf, np.inf)
