"""Attention with relative positions in one step equals the same formed step by step, forward and backward."""

import pytest
import torch
from torch import Tensor

from mnemoscope.engine import relative_attention
from mnemoscope.engine.block import attention_scores, hide_keys, visible_keys
from mnemoscope.engine.relative_attention import BLOCK, attend_causally


def step_by_step(q: Tensor, k: Tensor, v: Tensor, vectors: Tensor, *, scale: float) -> Tensor:
    """The same with a tensor for each step, whose gradient is PyTorch's own."""
    places = torch.arange(q.shape[1])
    scores = attention_scores(q, k, scale=scale, soft_cap=None, relative=(vectors, places))
    return hide_keys(scores, visible_keys(places, q.shape[1]), linear=False).softmax(-1) @ v


def random_inputs(n: int, dtype: torch.dtype = torch.double) -> list[Tensor]:
    """Queries, keys and values of three rows at n positions, and more vectors of distances than are needed."""
    generator = torch.Generator().manual_seed(n)
    shapes = [*[(3, n, 4)] * 3, (n + 2, 4)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("n", [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK // 2, 3 * BLOCK // 2 + 1, 2 * BLOCK + 7])
def test_outputs_and_gradients_equal_those_of_the_steps(n: int) -> None:
    inputs = random_inputs(n)
    weights = torch.linspace(-1, 1, 3 * n * 4, dtype=torch.double).view(3, n, 4)
    found, expected = (attend(*inputs, scale=2.0) for attend in (attend_causally, step_by_step))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    by_hand, by_torch = (torch.autograd.grad((z * weights).sum(), inputs) for z in (found, expected))
    for one, other in zip(by_hand, by_torch, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert not by_hand[3][n:].any(), "distances that occur nowhere have no gradient"


def test_gradients_equal_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relative_attention, "BLOCK", 2)
    assert torch.autograd.gradcheck(lambda *x: attend_causally(*x, scale=1.5), random_inputs(5))


def test_function_transforms_take_it() -> None:
    q, k, v, vectors = random_inputs(6)
    found = torch.func.grad(lambda x: attend_causally(x, k, v, vectors, scale=1.0).square().sum())(q)
    expected = torch.func.grad(lambda x: step_by_step(x, k, v, vectors, scale=1.0).square().sum())(q)
    torch.testing.assert_close(found, expected)
