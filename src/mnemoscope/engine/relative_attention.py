"""Causal attention with relative positions in one step, with a backward pass written by hand.

    scores[i, j] = q_i · (k_j + r_{i-j}) / scale     z = softmax(scores) v

PyTorch's fused kernel knows no vectors of distances. Formed step by step, most time goes into tensors of a number for
each pair of positions. Two things save some. Queries are taken in blocks, each with the keys up to its end, so that
later keys cost nothing. Products q_i · r_{i-j} are a view: a matrix of all q_i · r_d, distances descending, holds row i
shifted by i, so that reading it with rows one entry shorter shifts them back (Huang et al. 2018, Music Transformer). An
entry beyond the last distance keeps the rows of the view apart, so that it can be written to as well.
"""

import math
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

BLOCK = 33
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
        descending = _descending(vectors, q.shape[1]) * factor
        z, patterns = torch.empty_like(v), []
        for start, end in _blocks(q.shape[1]):
            own = q[:, start:end].contiguous()
            products = (own.flatten(0, 1) @ descending[-end - 1 :].T).view(*own.shape[:2], end + 1)
            scores = torch.baddbmm(_by_key(products), own, k[:, :end].mT, alpha=factor)
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
        descending = _descending(vectors, q.shape[1])
        by_q, by_k, by_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        by_descending = torch.zeros_like(descending)
        for (start, end), pattern in zip(_blocks(q.shape[1]), patterns, strict=True):
            own, by_own = q[:, start:end].contiguous(), by_z[:, start:end]
            by_v[:, :end] += pattern.mT @ by_own
            by_pattern = by_own @ v[:, :end].mT
            by_distance = q.new_zeros(*own.shape[:2], end + 1)
            by_scores, by_products = _by_key(by_distance), by_distance.flatten(0, 1)  # both are views
            by_scores.copy_(torch.ops.aten._softmax_backward_data(by_pattern, pattern, -1, pattern.dtype))
            by_q[:, start:end] = by_scores @ k[:, :end] + (by_products @ descending[-end - 1 :]).view_as(own)
            by_k[:, :end] += by_scores.mT @ own
            by_descending[-end - 1 :].addmm_(by_products.T, own.flatten(0, 1), alpha=factor)
        by_vectors = torch.zeros_like(vectors)
        by_vectors[: q.shape[1]] = by_descending[:-1].flip(0)
        return by_q.mul_(factor), by_k.mul_(factor), by_v, by_vectors, None


def _blocks(n: int) -> list[tuple[int, int]]:
    """First and last position + 1 of blocks of nearly equal size."""
    size = math.ceil(n / max(1, round(n / BLOCK)))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def _descending(vectors: Float[Tensor, "n_ctx d_head"], n_pos: int) -> Float[Tensor, "n_pos_and_one d_head"]:
    """Vectors of the distances between these positions, the largest first, and one that no score takes."""
    return F.pad(vectors[:n_pos].flip(0), (0, 0, 0, 1))


def _by_key(by_distance: Float[Tensor, "row query n_and_one"]) -> Float[Tensor, "row query n"]:
    """A view by key of entries by distance, distances descending; what stands at later keys means nothing."""
    n, width = by_distance.shape[1:]
    return by_distance.as_strided((len(by_distance), n, width - 1), (n * width, width - 1, 1), n - 1)
