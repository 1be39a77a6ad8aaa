import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from mnemoscope import InputError
from mnemoscope.systems.memory_theory.associations import associations
from mnemoscope.systems.memory_theory.capacity import (
    outer_capacity,
    outer_products,
    predicted_capacity,
    predicted_recall,
    recalled,
)


def test_the_sum_is_that_of_outer_products():
    problem = associations(5, 3, draw=0, n_outputs=4)
    expected = sum(
        torch.outer(e, problem.outputs[k]) for e, k in zip(problem.inputs, problem.answers.tolist(), strict=True)
    )
    torch.testing.assert_close(outer_products(problem), expected)


def test_orthonormal_associations_are_all_recalled_and_permuted_ones_by_chance():
    problem = associations(64, 64, draw=0, orthonormal=True)
    matrix = outer_products(problem)
    asked = problem.permuted(0)
    assert recalled(problem, matrix) == 1
    assert recalled(asked, matrix) == float((asked.answers == problem.answers).double().mean())


def test_prediction_of_two_associations_is_one_integral():
    """N = 2: correct where 1 + a, with a of variance 1/d², exceeds a normal number of variance 2(1 + a)/d."""
    d = 16
    expected, _ = quad(lambda a: norm.pdf(a, scale=1 / d) * norm.cdf(np.sqrt((1 + a) * d / 2)), -1, 1)
    assert predicted_recall(2, d) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "tolerance"), [(100, 0.01), (300, 0.06)])
def test_predicted_recall_is_near_what_is_recalled(n, tolerance):
    """Nearest where almost all is recalled, which is where capacity is read."""
    d = 64
    problems = [associations(n, d, draw=draw) for draw in range(1000, 1020)]
    found = [recalled(problem, outer_products(problem)) for problem in problems]
    assert np.mean(found) == pytest.approx(predicted_recall(n, d), abs=tolerance)


def test_predicted_capacity_is_the_last_that_is_predicted_to_be_stored():
    n = predicted_capacity(128)
    assert predicted_recall(n, 128) >= 0.99 > predicted_recall(round(n * 1.06), 128)


def test_law_is_approached_from_above():
    """Predicted N log N grows faster than d² at small d, and nearly like it at large d."""

    def slope(d):
        amounts = [(n := predicted_capacity(width)) * np.log(n) for width in (d, 16 * d)]
        return np.log(amounts[1] / amounts[0]) / np.log(16**2)

    assert slope(32) > slope(256) > 1


def test_capacity_is_labelled():
    found = outer_capacity((32, 64), draws=(1000, 1001))
    assert found.capacity.dims == ("d", "draw")
    assert found.parameters.values.tolist() == [1024, 4096]
    assert (found.capacity.sel(d=64) > found.capacity.sel(d=32)).all()


def test_bad_input_is_refused():
    for wrong in (lambda: predicted_recall(1, 8), lambda: predicted_recall(4, 0), lambda: predicted_capacity(1)):
        with pytest.raises(InputError):
            wrong()
