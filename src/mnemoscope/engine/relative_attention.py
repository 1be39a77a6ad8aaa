"""Causal attention with relative positions in one step, with a backward pass written by hand.

    scores[i, j] = q_i · (k_j + r_{i-j}) / scale     z = softmax(scores) v

PyTorch's fused kernel knows no vectors of distances. Formed step by step, most time goes into tensors of a number for
each pair of positions. Two things save some. Queries are taken in blocks, each with the keys up to its end, so that
later keys cost nothing. Products q_i · r_{i-j} are a view: a matrix of all q_i · r_d, distances descending, holds row i
shifted by i, so that reading it with rows one entry shorter shifts them back (Huang et al. 2018, Music Transformer).
"""

import math
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

BLOCK = 50
"""Queries that are taken together: smaller blocks skip more keys, larger ones need fewer calls."""

Rows = Float[Tensor, "row pos d_head"]
"""Queries, keys or values; a row is a sequence and a head."""


def attend_causally(q: Rows, k: Rows, v: Rows, vectors: Float[Tensor, "n_ctx d_head"], *, scale: float) -> Rows:
    """Head outputs z at all positions, which start at the first."""
    return _Attend.apply(q, k, v, vectors, 1 / scale)[0]


def relative_products(
    q: Float[Tensor, "*rows query d_head"],
    vectors: Float[Tensor, "n_ctx d_head"],
    queries: Int[Tensor, " query"],
    n_keys: int,
) -> Float[Tensor, "*rows query key"]:
    """Products of queries, at these positions, with the vector of each key's distance; of later keys with the first."""
    distance = (queries[:, None] - torch.arange(n_keys, device=queries.device)).clamp(min=0)
    return einsum(q, F.embedding(distance, vectors), "... query width, query key width -> ... query key")


class _Attend(torch.autograd.Function):
    """Forward and backward pass; beside z it gives the patterns of all blocks, which the backward pass needs."""

    @staticmethod
    def forward(q: Rows, k: Rows, v: Rows, vectors: Tensor, factor: float) -> tuple[Tensor, ...]:
        descending = vectors[: q.shape[1]].flip(0) * factor
        z, patterns = torch.empty_like(v), []
        for start, end in _blocks(q.shape[1]):
            own = q[:, start:end].contiguous()
            products = _shifted_back((own.flatten(0, 1) @ descending[-end:].T).view(*own.shape[:2], end))
            scores = torch.baddbmm(products, own, k[:, :end].mT, alpha=factor)
            scores[..., start:] += torch.full((end - start,) * 2, -math.inf, dtype=q.dtype, device=q.device).triu(1)
            pattern = scores.softmax(-1)
            z[:, start:end] = pattern @ v[:, :end]
            patterns.append(pattern)
        return z, *patterns

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.factor = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *by_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        by_z, factor = by_output[0], ctx.factor
        q, k, v, vectors, *patterns = ctx.saved_tensors
        descending = vectors[: q.shape[1]].flip(0)
        by_q, by_k, by_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        by_descending = torch.zeros_like(descending)
        for (start, end), pattern in zip(_blocks(q.shape[1]), patterns, strict=True):
            own, by_own = q[:, start:end].contiguous(), by_z[:, start:end]
            by_v[:, :end] += pattern.mT @ by_own
            by_pattern = by_own @ v[:, :end].mT
            by_scores = torch.ops.aten._softmax_backward_data(by_pattern, pattern, -1, pattern.dtype)
            by_products = _shifted(by_scores).flatten(0, 1)
            by_q[:, start:end] = by_scores @ k[:, :end] + (by_products @ descending[-end:]).view_as(own)
            by_k[:, :end] += by_scores.mT @ own
            by_descending[-end:].addmm_(by_products.T, own.flatten(0, 1), alpha=factor)
        by_vectors = torch.zeros_like(vectors)
        by_vectors[: q.shape[1]] = by_descending.flip(0)
        return by_q.mul_(factor), by_k.mul_(factor), by_v, by_vectors, None


def _blocks(n: int) -> list[tuple[int, int]]:
    """First and last position + 1 of blocks of nearly equal size."""
    size = math.ceil(n / max(1, round(n / BLOCK)))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def _shifted_back(
    products: Float[Tensor, "row query distance"],
) -> Float[Tensor, "row query key"]:
    """Products by key from products by distance, distances descending; what later keys get means nothing."""
    n, width = products.shape[1:]
    return products.as_strided(products.shape, (n * width, width - 1, 1), n - 1)


def _shifted(by_key: Float[Tensor, "row query key"]) -> Float[Tensor, "row query distance"]:
    """Entries by distance from entries by key, which are 0 at later keys."""
    shifted = torch.empty_like(by_key)
    shifted.flatten(1)[:, : by_key.shape[1] - 1] = 0  # the rest is covered by the view
    view = _shifted_back(shifted)
    view[..., :-1] = by_key[..., :-1]  # the last column of a row is the first of the next, and 0 but in the last row
    view[:, -1, -1] = by_key[:, -1, -1]
    return shifted
