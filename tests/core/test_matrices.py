import pytest
import torch

from mnemoscope.core.numerics import factored_eigenvalues, factored_singular_values, factored_svd, sign_score
from tests.support import seeded

SHAPES = [(7, 3, 5), (5, 3, 7), (4, 4, 4), (3, 6, 5), (6, 6, 2)]


def pair(row: int, rank: int, column: int):
    draws = seeded()
    return (torch.randn(2, *shape, generator=draws, dtype=torch.double) for shape in ((row, rank), (rank, column)))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decomposition_is_that_of_the_product(shape):
    left, right = pair(*shape)
    u, s, v = factored_svd(left, right)
    assert s.shape == (2, min(shape))
    torch.testing.assert_close(u * s[:, None] @ v.mT, left @ right)
    torch.testing.assert_close(u.mT @ u, torch.eye(min(shape)).double().expand(2, -1, -1))
    torch.testing.assert_close(v.mT @ v, torch.eye(min(shape)).double().expand(2, -1, -1))
    torch.testing.assert_close(s, torch.linalg.svdvals(left @ right)[:, : min(shape)])
    torch.testing.assert_close(factored_singular_values(left, right), s)


@pytest.mark.parametrize("shape", [(7, 3, 7), (3, 6, 3), (4, 4, 4)])
def test_eigenvalues_are_those_of_the_product(shape):
    left, right = pair(*shape)
    found = factored_eigenvalues(left, right)
    assert found.shape == (2, min(shape))
    for values, product in zip(found, left @ right, strict=True):
        expected = torch.linalg.eigvals(product)
        expected = expected[expected.abs().argsort(descending=True)][: min(shape)]
        torch.testing.assert_close(values.abs(), expected.abs())
        torch.testing.assert_close(values.real.sum(), product.trace())
        torch.testing.assert_close(values.pow(2).sum().real, (product @ product).trace())


def test_the_sign_score_by_hand():
    values = torch.tensor([[3, 2, 1], [-3, -2, -1], [3 + 4j, 3 - 4j, 0], [0, 0, 0]], dtype=torch.complex128)
    assert sign_score(values)[:3].tolist() == pytest.approx([1, -1, 6 / 10])
    assert sign_score(values)[3].isnan()
