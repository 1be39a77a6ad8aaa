"""Summaries show every change above their tolerance, and none below."""

import numpy as np
import pytest
import torch

from tests.golden.summary import Tolerance, differences, digest, distance, summary

pytestmark = pytest.mark.golden
CLOSE = Tolerance(relative=1e-5, absolute=0.0)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape)


@pytest.mark.parametrize("place", [0, 57, 119])
def test_one_number_that_changes_is_seen(place):
    before = random(4, 5, 6)
    after = before.copy()
    after.ravel()[place] += 1e-4 * np.linalg.norm(before)
    assert distance(summary(after), summary(before), CLOSE) >= 10


def test_rounding_is_not_seen():
    before = random(4, 50, 6)
    assert distance(summary(before * (1 + 1e-6 * random(4, 50, 6, seed=1))), summary(before), CLOSE) < 1


def test_two_numbers_that_change_places_another_shape_and_what_is_not_finite_are_seen():
    before = random(3, 4)
    assert distance(summary(before[::-1]), summary(before), CLOSE) > 1
    assert distance(summary(before.T), summary(before), CLOSE) == np.inf
    masked, other = before.copy(), before.copy()
    masked[0, 0], other[0, 0] = -np.inf, np.nan
    assert distance(summary(masked), summary(before), CLOSE) == np.inf
    assert distance(summary(masked), summary(other), CLOSE) == np.inf
    assert distance(summary(masked), summary(masked.copy()), CLOSE) == 0


def test_sums_are_signed_sums_of_the_array():
    found = summary(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    assert found.norm == 5
    assert found.shape == "2x2"
    assert set(np.abs(found.sums)) <= {1.0, 7.0}
    assert len(set(found.sums)) == 4


def test_what_is_missing_and_what_is_new_is_said():
    one, other = summary(random(3)), summary(random(3, seed=1))
    assert differences({"a": one, "b": one}, {"b": other, "c": one}, CLOSE)[:2] == ["c is gone", "a is not on record"]
    assert differences({"a": one}, {"a": one}, CLOSE) == []


def test_digests_differ_by_every_bit():
    array = random(5)
    other = array.copy()
    other[3] = np.nextafter(other[3], np.inf)
    assert digest([array]) == digest([array.copy()]) != digest([other])
