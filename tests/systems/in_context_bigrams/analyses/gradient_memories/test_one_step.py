import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import (
    loss,
    one_step,
    one_step_recall,
    recalled_after_one_step,
)
from tests.support import global_generators_untouched, reads_back, seeded


def test_one_hot_embeddings_by_hand():
    eye = torch.eye(3, dtype=torch.double)
    third = 1 / 3
    # (u_f(z) - mean of u) / N in row z
    expected = (eye[[1, 1, 0]] - third) / 3
    torch.testing.assert_close(one_step(eye, eye, torch.tensor([1, 1, 0])), expected)


def test_it_is_the_step_of_autograd():
    inputs, outputs = torch.randn(5, 4, generator=seeded()).double(), torch.randn(6, 3, generator=seeded(1)).double()
    answers = torch.tensor([0, 5, 2, 2, 1])
    matrix = torch.zeros(4, 3, dtype=torch.double, requires_grad=True)
    joint = torch.nn.functional.one_hot(answers, 6).double() / 5
    (exact,) = torch.autograd.grad(loss(matrix, inputs, outputs, joint), matrix)
    torch.testing.assert_close(one_step(inputs, outputs, answers), -exact)


def test_more_dimensions_store_more_and_permuted_answers_are_not_stored(tmp_path):
    with global_generators_untouched():
        found = one_step_recall([24], [2, 256], seeds=[100, 101])
    assert found.recall.sel(d=256).values.tolist() == [[1, 1]]
    assert found.recall.sel(d=2).max() < 0.6
    assert recalled_after_one_step(24, 256, seed=100, permuted=True) < 0.4
    assert reads_back(found, tmp_path / "found.nc")


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("n", "d", "message"), [(1, 4, "n must be at least 2"), (4, 0, "d must be at least 1")])
def test_sizes_that_cannot_be_are_refused(n, d, message):
    with pytest.raises(InputError, match=message):
        recalled_after_one_step(n, d, seed=0)
