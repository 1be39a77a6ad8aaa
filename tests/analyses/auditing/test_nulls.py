import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test

from mnemoscope.analyses.auditing.effects import Readings, cluster_means
from mnemoscope.analyses.auditing.nulls import deal_labels, draw_heads, flip_signs, mean_intervals, rank_among


def rng(seed=0):
    return np.random.default_rng(seed)


def test_few_clusters_are_flipped_in_all_ways_as_scipy_does():
    effects = rng().normal(0.4, 1, (5, 9))
    expected = permutation_test(
        (effects,), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=999, axis=1
    ).pvalue
    assert flip_signs(effects, 99, rng()) == pytest.approx(expected)


def test_many_clusters_are_flipped_at_random_and_p_is_never_zero():
    effects = rng().normal([[0.0], [0.3], [5.0]], 1, (3, 60))
    found = flip_signs(effects, 9999, rng())
    expected = permutation_test(
        (effects,), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=9999, axis=1, rng=rng(1)
    ).pvalue
    assert found == pytest.approx(expected, abs=0.02)
    assert found[2] == 1 / 10_000


def test_flips_of_right_and_wrong_answers_are_the_exact_test_of_mcnemar():
    change = np.array([[1.0] * 9 + [-1.0] * 2 + [0.0] * 2])
    assert flip_signs(change, 99, rng())[0] == pytest.approx(binomtest(9, 11).pvalue)


def test_cells_that_lack_a_cluster_are_tested_on_the_others():
    effects = rng().normal(0.5, 1, (2, 12))
    effects[1, 8:] = np.nan
    alone = flip_signs(effects[1:, :8], 99, rng())
    assert flip_signs(effects, 99, rng())[1] == pytest.approx(alone[0])
    assert mean_intervals(effects, rng())[:, 1] == pytest.approx(mean_intervals(effects[1:, :8], rng(3))[:, 0], rel=0.2)


def test_an_effect_that_is_nowhere_has_p_one():
    assert flip_signs(np.zeros((2, 20)), 999, rng()).tolist() == [1, 1]


def test_rounding_decides_no_p():
    """In many prompts a head does nothing, up to rounding, and one prompt carries the sum."""
    exact = np.zeros((3, 24))
    exact[0, 0], exact[1, :4], exact[2] = 14.3, [14.3, 0.05, 0.06, 0.4], 14.3
    rounded = exact + rng().normal(0, 2e-6, exact.shape)
    for effects in (exact, rounded):
        found = flip_signs(effects, 9999, rng())
        assert found[:2] == pytest.approx([1, 1 / 8], abs=0.02)
        assert found[2] == 1e-4
    heads = draw_heads(exact[None], 999, rng())
    assert np.array_equal(draw_heads(rounded[None], 999, rng()), heads)
    controls = np.tile(exact.mean(1), (19, 1))
    assert rank_among(rounded, controls).tolist() == rank_among(exact, controls).tolist() == [1, 1, 1]


def test_a_head_like_all_others_of_its_layer_is_no_news():
    effects = np.ones((2, 4, 10))
    assert (draw_heads(effects, 999, rng()) == 1).all()
    effects[0, 2] = 3
    assert draw_heads(effects, 999, rng())[0, 2] == 1 / 1000
    assert (draw_heads(effects, 999, rng())[0, [0, 1, 3]] > 0.9).all()


def test_dealt_labels_give_chance():
    label = rng().integers(3, size=90).astype(float)
    right, blind = label.copy(), np.zeros(90)
    readings = Readings(prediction=np.stack([right, blind]), label=np.stack([label, label]), numbers=False)
    effects, p = deal_labels(readings, np.arange(90), 999, rng())
    assert p.tolist() == [1 / 1000, 1.0]  # one class for all is right as often with other labels
    assert effects.mean(1) == pytest.approx([1 - sum((label == k).mean() ** 2 for k in range(3)), 0], abs=0.01)


def test_labels_are_dealt_to_clusters_and_not_within():
    cluster = np.repeat(np.arange(6), 20)
    label = np.repeat([0.0, 0.0, 1.0, 1.0, 0.0, 1.0], 20)
    readings = Readings(prediction=label[None], label=label[None], numbers=False)
    assert deal_labels(readings, cluster, 9999, rng())[1][0] == pytest.approx(1 / 20, abs=0.01)  # 3 of 6
    assert deal_labels(readings, np.arange(120), 9999, rng())[1][0] == 1e-4


def test_numbers_are_scored_by_their_squared_error():
    label = rng().normal(size=60)
    readings = Readings(prediction=np.stack([label, -label]), label=np.stack([label, label]), numbers=True)
    effects, p = deal_labels(readings, np.arange(60), 999, rng())
    assert p == pytest.approx([1 / 1000, 1.0], abs=0.01)
    assert effects.mean(1)[0] == pytest.approx(2 * label.var(), rel=0.05)


def test_a_rank_among_controls():
    controls = np.array([[0.1, 2.0], [-0.2, -3.0], [0.3, 1.0]])
    assert rank_among(np.full((2, 5), 1.0), controls).tolist() == [1 / 4, 4 / 4]


def test_prompts_of_a_cluster_are_averaged():
    values = np.array([[1.0, 3.0, 10.0, np.nan], [np.nan, 4.0, np.nan, np.nan]])
    found = cluster_means(values, np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(found, [[2.0, 10.0], [4.0, np.nan]])


@pytest.mark.parametrize("draw", [lambda g, size: g.normal(size=size), lambda g, size: g.exponential(size=size) - 1])
def test_intervals_cover_as_often_as_they_say(draw):
    low, high = mean_intervals(draw(rng(5), (800, 24)), rng())
    covered = ((low <= 0) & (high >= 0)).mean()
    assert 0.925 <= covered <= 0.98
