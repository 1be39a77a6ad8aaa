"""A matrix without its smallest singular values, with its exact gradient.

With M = U diag(s) V^T and f(s) = s for values that are kept and 0 for others, the derivative of U diag(f) V^T along E
is in the basis of U and V

    (f_i - f_j) / (s_i - s_j) · symmetric part of E  +  (f_i + f_j) / (s_i + s_j) · antisymmetric part of E,

and f_i / s_i for directions outside of it. Autograd through the decomposition divides by the difference of every pair;
here only pairs on both sides of the cut count. The gradient is the same map, since it is self-adjoint.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def truncate(matrix: Float[Tensor, "*head row column"], rank: int) -> Float[Tensor, "*head row column"]:
    """The part of the `rank` largest singular values, of every matrix for itself; all of it where there are no more."""
    return matrix if rank >= min(matrix.shape[-2:]) else _Truncated.apply(matrix, rank)[0]  # pyright: ignore[reportOptionalSubscript]


class _Truncated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        left, size, right = torch.linalg.svd(matrix, full_matrices=False)
        return (left[..., :rank] * size[..., None, :rank]) @ right[..., :rank, :], left, size, right

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.rank = inputs[1]
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient, (left, size, right) = gradients[0], ctx.saved_tensors
        kept = (torch.arange(size.shape[-1], device=size.device) < ctx.rank).to(size)
        within = left.mT @ gradient @ right.mT
        symmetric, antisymmetric = (within + within.mT) / 2, (within - within.mT) / 2
        difference, total = (size[..., :, None] - size[..., None, :]), (size[..., :, None] + size[..., None, :])
        both, across = kept[:, None] * kept, kept[:, None] != kept
        value = size * kept
        steep = (value[..., :, None] - value[..., None, :]) / torch.where(across, difference, 1)
        level = (value[..., :, None] + value[..., None, :]) / torch.where(across, total, 1)
        inside = torch.where(across, steep, both) * symmetric + torch.where(across, level, both) * antisymmetric
        outside_rows = gradient - left @ (left.mT @ gradient)
        outside_columns = gradient - (gradient @ right.mT) @ right
        found = left @ inside @ right
        found = found + (outside_rows @ right.mT * kept) @ right + (left * kept) @ (left.mT @ outside_columns)
        return found, None
