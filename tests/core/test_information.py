import math

import pytest
import torch

from mnemoscope.core.numerics import (
    class_entropy,
    entropy,
    mutual_information,
    number_classes,
    quantile_states,
    quantise,
)
from tests.support import seeded


def even(n):
    return torch.full((n,), 1 / n, dtype=torch.double)


def test_entropy_by_hand():
    rows = torch.tensor([[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.25] * 4, [0.5, 0.25, 0.25, 0]], dtype=torch.double)
    assert entropy(rows).tolist() == [1, 0, 2, 1.5]


def test_information_by_hand():
    classes = torch.tensor([0, 1, 2, 3])
    states = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1], [5, 5, 5, 5], [3, 1, 0, 2]]).T
    binary = 2 - 0.75 * math.log2(3)  # entropy of 3/4, 1/4
    expected = torch.tensor([1, 1, binary, 0, 2], dtype=torch.double)
    torch.testing.assert_close(mutual_information(states, classes[:, None], even(4))[:, 0], expected)


def test_independent_quantities_tell_nothing():
    states = torch.tensor([0, 0, 1, 1, 2, 2])[:, None]
    classes = torch.tensor([0, 1, 0, 1, 0, 1])[:, None]
    weights = torch.tensor([1, 2, 2, 4, 3, 6], dtype=torch.double) / 18  # a product of (3, 6, 9) and (1, 2)
    torch.testing.assert_close(mutual_information(states, classes, weights), torch.zeros(1, 1, dtype=torch.double))


def test_a_row_of_weight_two_is_two_rows_and_one_of_weight_zero_none():
    states, classes = (torch.randint(0, 3, (6, n), generator=seeded(n)) for n in (4, 1))
    repeats = torch.tensor([1, 2, 0, 1, 3, 1])
    weighted = mutual_information(states, classes, repeats.double() / 8)
    repeated = mutual_information(states.repeat_interleave(repeats, 0), classes.repeat_interleave(repeats, 0), even(8))
    torch.testing.assert_close(weighted, repeated)


def test_information_is_symmetric_and_bounded_by_both_entropies():
    a, b = (torch.randint(0, k, (50, 1), generator=seeded(k)) for k in (3, 5))
    weights = torch.rand(50, generator=seeded(), dtype=torch.double)
    weights = weights / weights.sum()
    there, back = mutual_information(a, b, weights), mutual_information(b, a, weights)
    torch.testing.assert_close(there, back)
    assert 0 < there < min(class_entropy(a, weights), class_entropy(b, weights))
    torch.testing.assert_close(mutual_information(b, b, weights)[0], class_entropy(b, weights))


def test_all_variables_at_once_and_in_parts_are_as_one_at_a_time(monkeypatch):
    states = torch.randint(0, 2, (40, 3), generator=seeded())
    classes = torch.stack([torch.arange(40) % k for k in (11, 2, 7)], 1)
    single = torch.cat([mutual_information(states, column[:, None], even(40)) for column in classes.T], 1)
    torch.testing.assert_close(mutual_information(states, classes, even(40)), single)
    monkeypatch.setattr("mnemoscope.core.numerics._VALUES_AT_ONCE", 4)
    monkeypatch.setattr("mnemoscope.core.numerics._NUMBERS_AT_ONCE", 170)
    torch.testing.assert_close(mutual_information(states, classes, even(40)), single)


def test_the_bias_of_a_sample_is_the_one_that_is_stated():
    n, draws = 200, 300
    states, classes = (torch.randint(0, k, (n, draws), generator=seeded(k)) for k in (4, 5))
    found = torch.stack([mutual_information(states[:, [i]], classes[:, [i]], even(n)) for i in range(draws)]).mean()
    assert float(found) == pytest.approx(3 * 4 / (2 * n * math.log(2)), rel=0.1)


def test_relabelled():
    assert number_classes(torch.tensor([7, -1, 7, 0])).tolist() == [2, 0, 2, 1]


def test_quantiles_by_hand():
    values = torch.tensor([[10, 20, 30, 40], [0, 0, 0, 9], [5, 5, 5, 5]]).T
    expected = [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert quantile_states(values, even(4), 2).T.tolist() == expected
    assert quantile_states(values, even(4), 4).T.tolist() == [[0, 1, 2, 3], [0, 0, 0, 3], [0, 0, 0, 0]]


def test_quantiles_are_those_of_the_weights():
    values = torch.tensor([[10, 20, 30, 40]]).T
    weights = torch.tensor([0.6, 0.2, 0.1, 0.1], dtype=torch.double)
    assert quantile_states(values, weights, 2).T.tolist() == [[0, 1, 1, 1]]


def test_rounding_errors_are_no_states():
    values = torch.tensor([[1.0, 1.0 + 1e-7, 0.5], [0.0, 1e-8, 0.0], [-1e-7, 1e-7, 0.25]]).T
    assert quantise(values).T.tolist() == [[1000000, 1000000, 500000], [0, 0, 0], [0, 0, 250000]]
