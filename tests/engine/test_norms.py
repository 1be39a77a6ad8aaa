"""Softmax over scores."""

import pytest
import torch

from mnemoscope.engine.norms import softmax
from tests.support import seeded


@pytest.mark.parametrize("n_keys", [1, 2, 9, 15, 16, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_is_that_of_torch_for_rows_of_any_length(n_keys, dtype):
    scores = 50 * torch.randn(3, 4, n_keys, dtype=dtype, generator=seeded())
    scores[0, 0, 1:] = -torch.inf
    torch.testing.assert_close(softmax(scores), scores.softmax(-1))
    assert softmax(torch.full((2, n_keys), -torch.inf)).isnan().all()
    scores.requires_grad_()
    weights = torch.randn(3, 4, n_keys, dtype=dtype, generator=seeded(1))
    (found,), (expected,) = (
        torch.autograd.grad((weights * of).sum(), scores) for of in (softmax(scores), scores.softmax(-1))
    )
    torch.testing.assert_close(found, expected)
