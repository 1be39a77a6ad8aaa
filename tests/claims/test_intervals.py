import numpy as np
import pytest
from scipy import stats

from mnemoscope.claims import intervals
from mnemoscope.claims.intervals import share_interval
from tests.claims.trials import make_evidence


def studentised(values, prompts="enumerated", seed=0, n_resamples=1999):
    values = np.asarray(values, dtype=float)
    sample = make_evidence(values, prompts=prompts).sample("effect", np.ones(len(values), dtype=bool))
    return intervals.studentised(sample, seed=seed, n_resamples=n_resamples)


def test_the_interval_of_a_share_is_exact():
    all_of_16 = share_interval(16, 16)
    assert all_of_16.low == pytest.approx(0.025 ** (1 / 16))  # .79
    assert all_of_16.high == 1
    low, high = share_interval(8, 16).low, share_interval(8, 16).high
    assert low == pytest.approx(1 - high)
    assert stats.binom.sf(7, 16, low) == pytest.approx(0.025)
    assert (share_interval(0, 0).low, share_interval(0, 0).high) == (0, 1)


def test_the_mean_has_students_error_and_never_less_than_students_interval():
    values = np.random.default_rng(0).normal(size=16)
    result = studentised(values)
    assert result.mean == pytest.approx(values.mean())
    assert result.error == pytest.approx(stats.sem(values))
    student = stats.t.interval(0.95, 15, values.mean(), stats.sem(values))
    assert result.interval.low <= student[0] < student[1] <= result.interval.high
    assert result.interval.high - result.interval.low < 1.3 * (student[1] - student[0])
    assert result.p_above(0.0) >= stats.ttest_1samp(values, 0.0, alternative="greater").pvalue


def test_the_interval_reaches_far_to_the_side_of_the_long_tail():
    values = np.random.default_rng(0).exponential(size=16)
    result = studentised(values)
    assert result.interval.high - result.mean > 1.3 * (result.mean - result.interval.low)
    mirrored = studentised(-values)
    assert mirrored.interval.low == pytest.approx(-result.interval.high)
    assert mirrored.p_below(-0.5) == pytest.approx(result.p_above(0.5))


def test_p_and_interval_agree():
    result = studentised(np.random.default_rng(1).normal(size=20))
    for bound, p in ((result.interval.low, result.p_above), (result.interval.high, result.p_below)):
        assert p(bound) == pytest.approx(0.025, abs=0.002)


def test_equal_effects_have_no_error():
    result = studentised(np.full(16, 0.3))
    assert (result.interval.low, result.interval.high) == (pytest.approx(0.3), pytest.approx(0.3))
    assert result.p_above(0.2) == result.p_below(0.4) == 1 / 2000
    assert result.p_above(0.3) == result.p_below(0.3) == 1


@pytest.mark.parametrize("values", [[1.0], [1.0, np.inf, 2.0]])
def test_where_no_error_can_be_had_nothing_is_excluded(values):
    result = studentised(values)
    assert (result.interval.low, result.interval.high) == (-np.inf, np.inf)
    assert result.p_above(-100.0) == result.p_below(-100.0) == 1


def test_one_deviating_replicate_does_not_make_the_interval_endless():
    result = studentised([0.001 * i + 1 for i in range(15)] + [0.0])
    assert 0.6 < result.interval.low < 0.8
    assert result.p_above(0.25) < 0.005


def test_prompts_of_their_own_are_resampled_within_replicates_and_enumerated_ones_are_not():
    noise = np.random.default_rng(0).normal(size=(16, 50))
    noise -= noise.mean(1, keepdims=True)
    effects = np.random.default_rng(1).normal(0, 0.01, 16)
    values = effects[:, None] + noise  # the noise cancels exactly over these prompts
    assert studentised(values).roots.tolist() == pytest.approx(studentised(effects).roots.tolist())
    # resampled prompts bring in an error that the sixteen means do not show
    assert studentised(values, "own").roots.std() < studentised(values).roots.std()


def test_shared_prompts_are_resampled_once_for_all():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 25))
    values = common + rng.normal(0, 0.01, (16, 25))
    shared, own = studentised(values, "shared"), studentised(values, "own")
    assert shared.error == pytest.approx(common.std(ddof=1) / 5, rel=0.02)
    assert own.error < shared.error / 20
    assert shared.roots.std() == pytest.approx(1.05, abs=0.1)  # Student's t, 24 degrees of freedom


def test_the_resamples_follow_from_the_seed():
    values = np.random.default_rng(0).normal(size=16)
    assert np.array_equal(studentised(values).roots, studentised(values).roots)
    assert not np.array_equal(studentised(values).roots, studentised(values, seed=1).roots)
