import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import (
    against_autograd,
    association_gradient,
    loss,
)
from tests.support import global_generators_untouched, reads_back


def test_by_hand():
    # one input, two outputs, zero matrix: predictions are one half each, output 0 always follows
    eye = torch.eye(2, dtype=torch.double)
    found = association_gradient(
        torch.zeros(2, 2, dtype=torch.double), eye[:1], eye, torch.tensor([[1.0, 0.0]]).double()
    )
    assert found.tolist() == [[-0.5, 0.5], [0, 0]]


def test_it_is_zero_where_predictions_are_right():
    eye = torch.eye(3, dtype=torch.double)
    matrix = torch.arange(9, dtype=torch.double).view(3, 3).sqrt()
    joint = matrix.softmax(1) / 3
    assert association_gradient(matrix, eye, eye, joint).abs().max() < 1e-16
    assert loss(matrix, eye, eye, joint) < loss(0 * matrix, eye, eye, joint)


def test_the_formula_is_the_gradient_and_the_wrong_one_is_not(tmp_path):
    with global_generators_untouched():
        found = against_autograd(seed=100, n=4)
    assert found.difference.max() < 1e-12
    assert found.difference_without_predictions.min() > 0.01
    assert found.identical(against_autograd(seed=100, n=4))
    assert reads_back(found, tmp_path / "found.nc")


@pytest.mark.usefixtures("as_installed")
def test_what_is_no_distribution_is_refused():
    eye = torch.eye(2)
    with pytest.raises(InputError, match="joint must be probabilities that add up to 1"):
        association_gradient(eye, eye, eye, eye)
    with pytest.raises(InputError, match="n must be at least 1"):
        against_autograd(seed=0, n=0)
