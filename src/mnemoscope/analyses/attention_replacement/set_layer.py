"""One layer with set attention patterns.

A head with a set pattern needs its values only: z = pattern @ v. Queries and keys are formed for the heads whose
attention is learned, in all rows or in some.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.patterns import silent
from mnemoscope.engine.block import Attention, Block

PIECE_BYTES = 2**19
"""Memory for the activations of an MLP at once."""


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """The set attention of a layer.

    `rows` are 0 where attention is learned, which `free` marks; `learned` are the heads that have such rows.
    """

    rows: Float[Tensor, "batch head_index query key"]
    free: Bool[Tensor, "batch head_index query"]
    learned: tuple[int, ...]

    @staticmethod
    def of(rows: Float[Tensor, "batch head_index query key"]) -> "Patterns":
        """From patterns with NaN where attention is learned."""
        free = silent(rows)
        return Patterns(rows=rows.nan_to_num(), free=free, learned=tuple(free.any(-1).any(0).nonzero()[:, 0].tolist()))

    @cached_property
    def sees(self) -> Bool[Tensor, "batch query key"]:
        """True for the keys that a query attends to with some head."""
        return ((self.rows > 0) | self.free[..., None]).any(1).tril()

    @cached_property
    def all_free(self) -> bool:
        """True if nothing is set."""
        return bool(self.free.all())


@dataclass(frozen=True, kw_only=True)
class Projections:
    """Queries and keys of the heads with learned attention, and the values of all heads; heads lie side by side."""

    q: Float[Tensor, "*rows learned_heads"]
    k: Float[Tensor, "*rows learned_heads"]
    v: Float[Tensor, "*rows all_heads"]


def projections(block: Block, stream: Float[Tensor, "*rows d_model"], learned: Sequence[int]) -> Projections:
    """Queries and keys of the learned heads, and the values of all."""
    normed, attn = block.ln1(stream), block.attention
    n_heads, found = len(attn.w_o), {}
    for kind in ("q", "k", "v"):
        w, b = attn.into(kind)
        if kind != "v" and len(learned) < n_heads:
            w, b = (x.unflatten(0, (n_heads, -1))[list(learned)].flatten(0, 1) for x in (w, b))
        found[kind] = F.linear(normed, w, b)
    return Projections(**found)


def z_of(
    patterns: Patterns, of: Projections, attn: Attention, queries: Int[Tensor, " query"]
) -> Float[Tensor, "cell batch query all_heads"]:
    """The attended values of heads at some queries."""
    v, learned = attn.heads(of.v), list(patterns.learned)
    some = len(queries) < v.shape[-2]
    z = None if patterns.all_free else (patterns.rows[:, :, queries] if some else patterns.rows) @ v
    if learned:
        q, k = attn.heads(of.q[:, :, queries] if some else of.q), attn.heads(of.k)
        by_learned = attn.attend(q, k, v if len(learned) == v.shape[2] else v[:, :, learned], queries)
        if z is None:
            z = by_learned
        else:
            z[:, :, learned] = torch.where(patterns.free[:, learned][:, :, queries, None], by_learned, z[:, :, learned])
    assert z is not None
    return rearrange(z, "cell batch head pos d_head -> cell batch pos (head d_head)")


def after_mlp(block: Block, stream: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """The stream after the MLP of a block; it is overwritten, some rows at a time, whose activations fit the cache."""
    if block.mlp is not None:
        for rows in stream.split(max(1, PIECE_BYTES // (block.mlp.w_in.shape[1] * stream.element_size()))):
            rows += block.mlp(block.ln2(rows))
    return stream
