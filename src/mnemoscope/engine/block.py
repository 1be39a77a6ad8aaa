"""One layer: attention and an MLP read the residual stream and add to it. `Read` names the outputs that are wanted.

    q, k, v = parts of x W_QKV + b_QKV     scores = q·k / scale     z = softmax(scores) v     out = Σ_head z W_O + b_O

The softmax runs over the keys that a query may see: those up to itself (causal) or all, without padding, and only
within a window if there is one. Mixed attention is c softmax + (1 - c) over these keys. Linear attention leaves the
softmax out. Rotary positions turn queries and keys by an angle that grows with the position (Su et al. 2021). Relative
positions add to each key a vector r of its distance from the query (Shaw et al. 2018): scores = q·(k + r) / scale.
Heads may share keys and values in groups (Ainslie et al. 2023).

In shapes, `*rows` are the prompts, or cells (changed runs) and prompts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from einops import repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.engine.changes import MLP_INPUT, NO_CHANGES, Changes
from mnemoscope.engine.pointwise import Mlp, Norm, apply_soft_cap, project, safe_softmax, softmax
from mnemoscope.engine.relative_attention import attend_causally, relative_products

Heads = Float[Tensor, "*rows _ _ d_head"]
"""Queries, keys or values by head and position."""
QKV = Literal["q", "k", "v"]


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions, which turn the first `rotary_dim` entries of queries and keys.

    `cos` and `sin` are of the angles at every position, one for each entry that is turned. Pairs are neighbours if
    `adjacent`, as in GPT-J, else halves, as in GPT-NeoX and Llama.
    """

    cos: Float[Tensor, "n_ctx rotary_dim"]
    sin: Float[Tensor, "n_ctx rotary_dim"]
    adjacent: bool

    def __call__(self, x: Heads, positions: Int[Tensor, "*own _"] | slice) -> Heads:
        """Turn queries or keys at these positions."""
        cos, sin = self.cos[positions], self.sin[positions]
        if cos.ndim > 2:  # each row has positions of its own, the same for all heads
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
        return rotate(x, cos, sin, adjacent=self.adjacent)


@dataclass(frozen=True, kw_only=True)
class Past:
    """Keys and values of one layer in an earlier run, at all positions. Rotary positions are applied to the keys."""

    k: Float[Tensor, "prompt kv_head_index pos d_head"]
    v: Float[Tensor, "prompt kv_head_index pos d_head"]

    def select(self, prompts: Int[Tensor, " some"]) -> "Past":
        """The same of some prompts."""
        return Past(k=self.k[prompts], v=self.v[prompts])


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Weights of attention. Rows of `w_qkv` are the queries of all heads, then keys, then values.

    Attributes:
        w_qkv: One matrix, so that one product gives queries, keys and values.
        w_o: The output projection, from head outputs z to the residual stream.
        b_o: The bias of `w_o`, added once for all heads.
        scale: Scores are divided by it, usually sqrt(d_head); linear attention ignores it.
        n_kv: Number of heads with their own keys and values; each serves a group of `n_sharing` query heads.
        window: Largest number of keys that a query sees, its own included; None: no window.
        soft_cap: Scores s become cap · tanh(s / cap); None: no cap.
        linear: True if scores weigh the values directly, without a softmax.
        mix: Share c of the softmax in the pattern c softmax + (1 - c).
        masked: Token to which no query attends; None: there is no such token.
        relative: A vector for each distance, which the keys of all heads carry; None: there are none.
        fused: True allows PyTorch's fused kernel, which has no rule for `vmap`.
    """

    w_qkv: Float[Tensor, "rows d_model"]
    b_qkv: Float[Tensor, " rows"]
    w_o: Float[Tensor, "head_index d_head d_model"]
    b_o: Float[Tensor, " d_model"]
    scale: float
    n_kv: int
    rotary: Rotary | None = None
    causal: bool = True
    window: int | None = None
    soft_cap: float | None = None
    linear: bool = False
    mix: float = 1.0
    masked: int | None = None
    relative: Float[Tensor, "n_ctx d_head"] | None = None
    fused: bool = True

    @property
    def n_sharing(self) -> int:
        """Number of query heads that share one head's keys and values."""
        return len(self.w_o) // self.n_kv

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.w_o.shape[1]

    def input_projection(self, kind: QKV) -> tuple[Float[Tensor, "some_rows d_model"], Float[Tensor, " some_rows"]]:
        """Weight and bias of the queries, keys or values."""
        n_q, n_kv = len(self.w_o) * self.d_head, self.n_kv * self.d_head
        start = {"q": 0, "k": n_q, "v": n_q + n_kv}[kind]
        rows = slice(start, start + (n_q if kind == "q" else n_kv))
        return self.w_qkv[rows], self.b_qkv[rows]

    @cached_property
    def _split_projections(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Weight and bias of the queries, then of the keys and values together."""
        n_q = len(self.w_o) * self.d_head
        sizes = (n_q, len(self.b_qkv) - n_q)
        weights, biases = (whole.split(sizes) for whole in (self.w_qkv, self.b_qkv))
        if self.fused:
            weights, biases = (tuple(map(_aligned, parts)) for parts in (weights, biases))
        return (weights[0], biases[0]), (weights[1], biases[1])

    def heads(self, rows: Float[Tensor, "*rows pos some"]) -> Heads:
        """Give heads, which lie side by side in the last axis, an axis of their own before positions."""
        return rows.unflatten(-1, (-1, self.d_head)).transpose(-2, -3)

    def qkv(
        self, normed: Float[Tensor, "*rows pos d_model"], queries: Int[Tensor, " query"] | None, *, joint: bool
    ) -> tuple[Heads, Heads, Heads]:
        """Queries at some positions (None: all), and keys and values at all positions.

        `joint` allows one product for all three; its last bits differ from those of two products.
        """
        n_q, n_kv = len(self.w_o) * self.d_head, self.n_kv * self.d_head
        if queries is None and joint:
            q, k, v = F.linear(normed, self.w_qkv, self.b_qkv).split((n_q, n_kv, n_kv), -1)
        else:
            of_queries, of_others = self._split_projections
            q = F.linear(normed if queries is None else select_positions(normed, queries, -2), *of_queries)
            k, v = F.linear(normed, *of_others).split((n_kv, n_kv), -1)
        return self.heads(q), self.heads(k), self.heads(v)

    def rotate(self, x: Heads, positions: Int[Tensor, " pos"] | slice) -> Heads:
        """Apply rotary positions, if there are any, to queries or keys at these positions."""
        return x if self.rotary is None else self.rotary(x, positions)

    def z(
        self,
        normed: Float[Tensor, "*rows pos d_model"],
        *,
        queries: Int[Tensor, " query"] | None = None,
        past: Past | None = None,
        at: Changes = NO_CHANGES,
        padding: Bool[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "*rows query head_index d_head"]:
        """Head outputs z: the values weighted by each head's pattern, before the output projection.

        `normed` is the normalised stream, and `queries` are ascending positions within it (None: all). With `past`, the
        keys and values of the unchanged run at earlier positions, `normed` starts at the first changed position.
        Changes go by names within the block. `padding` has the places of the masked token.
        """
        q, k, v = self.qkv(normed, queries, joint=at is NO_CHANGES)
        n_own, device = normed.shape[-2], normed.device
        start = 0 if past is None else past.k.shape[-2] - n_own
        places = torch.arange(start, start + n_own, device=device) if queries is None else queries + start
        q, k, v = (_changed(at, f"attn.hook_{kind}", x) for kind, x in zip("qkv", (q, k, v), strict=True))
        if self.rotary is not None:
            q = _changed(at, "attn.hook_rot_q", self.rotary(q, places))
            k = _changed(at, "attn.hook_rot_k", self.rotary(k, slice(start, start + n_own)))
        if past is not None and start:  # a change leaves earlier keys and values as they are
            k, v = join_past(past.k, k), join_past(past.v, v)
        return at("attn.hook_z", self.attend(q, k, v, places, at, padding).transpose(-2, -3))

    def attend(
        self,
        q: Heads,
        k: Heads,
        v: Heads,
        queries: Int[Tensor, " query"],
        at: Changes = NO_CHANGES,
        padding: Bool[Tensor, "batch key"] | None = None,
    ) -> Float[Tensor, "*all_rows head_index query d_head"]:
        """Head outputs z for queries at these positions. Rotary positions have been applied."""
        assert (padding is None) == (self.masked is None)
        mask = visible_keys(queries, k.shape[-2], causal=self.causal, window=self.window, padding=padding)
        # The fused kernel shows neither scores nor pattern, so a run with hooks forms them step by step.
        stepwise = self.linear or self.soft_cap or self.mix != 1 or not self.fused or at is not NO_CHANGES
        if not stepwise and self.relative is None:
            rows, grouped, scale = q.shape[:-3], q.shape[-3] != k.shape[-3], 1 / self.scale
            if len(rows) > 1:  # the kernel takes one axis of rows
                q, k, v = (x.flatten(0, -4) for x in (q, k, v))
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped)
            return z.unflatten(0, rows) if len(rows) > 1 else z
        if q.shape[-3] != k.shape[-3]:
            k, v = (x.repeat_interleave(self.n_sharing, -3) for x in (k, v))
        everywhere = self.causal and self.window is None and padding is None and q.shape == k.shape
        if not stepwise and everywhere and self.relative is not None:
            rows = q.shape[:-2]
            q, k, v = (x.flatten(0, -3) for x in (q, k, v))
            return attend_causally(q, k, v, self.relative, scale=self.scale).unflatten(0, rows)
        relative = None if self.relative is None else (self.relative, queries)
        scale = 1.0 if self.linear else self.scale
        scores = attention_scores(q, k, scale=scale, soft_cap=self.soft_cap, relative=relative)
        scores = at("attn.hook_attn_scores", hide_keys(scores, mask, linear=self.linear))
        return at("attn.hook_pattern", self.pattern(scores, at)) @ v

    def pattern(
        self, scores: Float[Tensor, "*rows query key"], at: Changes = NO_CHANGES
    ) -> Float[Tensor, "*rows query key"]:
        """Attention pattern from scores, which a hook may have changed. A query that sees no key attends to nothing."""
        if self.linear:
            return scores
        # Softmax over minus infinities alone is NaN. Under `vmap` no value can be tested, so there it stays, unless
        # there is padding, or training with a clamp at the scores, where a query may see nothing.
        may_be_empty = self.masked is not None or (not at.exact and at.any("attn.hook_attn_scores"))
        pattern = safe_softmax(scores) if may_be_empty else softmax(scores)
        finite = not self.fused or pattern.sum().isfinite()
        return mix_pattern(pattern if finite else pattern.nan_to_num(), scores, self.mix)

    def project_out(self, z: Float[Tensor, "*rows head_index d_head"]) -> Float[Tensor, "*rows d_model"]:
        """Contribution of attention to the residual stream."""
        return project(z.flatten(-2), self.w_o.flatten(0, 1), self.b_o)


def waves(
    periods: Float[Tensor, " half"], n: int, *, adjacent: bool = False
) -> tuple[Float[Tensor, "n rotary_dim"], Float[Tensor, "n rotary_dim"]]:
    """Sines and cosines of the angles by which the first n positions turn each entry, one period for two entries."""
    periods = repeat(periods, "half -> (half 2)" if adjacent else "half -> (2 half)")
    angles = torch.arange(n, dtype=periods.dtype)[:, None] / periods
    return angles.sin(), angles.cos()


def rotate(
    x: Float[Tensor, "*rows d_head"],
    cos: Float[Tensor, "*some_rows rotary_dim"],
    sin: Float[Tensor, "*some_rows rotary_dim"],
    *,
    adjacent: bool,
) -> Float[Tensor, "*rows d_head"]:
    """Turn the first entries of each row, paired as neighbours or as halves, by the angles of these cosines."""
    pairs, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    if adjacent:
        across = torch.stack((-pairs[..., 1::2], pairs[..., ::2]), -1).flatten(-2)
    else:
        first, second = pairs.chunk(2, -1)
        across = torch.cat((-second, first), -1)
    pairs = pairs * cos + across * sin
    return torch.cat((pairs, rest), -1) if rest.shape[-1] else pairs


def attention_scores(
    q: Heads,
    k: Heads,
    *,
    scale: float,
    soft_cap: float | None,
    relative: tuple[Float[Tensor, "n_ctx d_head"], Int[Tensor, " query"]] | None = None,
) -> Float[Tensor, "*all_rows query key"]:
    """Scores of queries for all keys, those that they may not see included.

    `relative` has vectors of distances, which the keys carry, and the positions of the queries.
    """
    if relative is not None:
        q = q / scale  # once, before there are as many entries as pairs of positions
        return apply_soft_cap(q @ k.mT + relative_products(q, *relative, k.shape[-2]), soft_cap)
    products = q @ k.mT
    return apply_soft_cap(products if scale == 1 else products / scale, soft_cap)


def hide_keys(
    scores: Float[Tensor, "*rows query key"], mask: Bool[Tensor, "*some_rows query key"], *, linear: bool
) -> Float[Tensor, "*rows query key"]:
    """Scores that give no weight to keys outside of a mask."""
    return scores.masked_fill(~mask, 0.0 if linear else -math.inf)


def mix_pattern(
    pattern: Float[Tensor, "*rows query key"], scores: Float[Tensor, "*rows query key"], share: float
) -> Float[Tensor, "*rows query key"]:
    """Mix a softmax with a constant at all keys that have a score: share · pattern + 1 - share."""
    return pattern if share == 1 else share * pattern + (1 - share) * (scores > -math.inf).to(pattern)


def visible_keys(
    queries: Int[Tensor, " query"],
    n_keys: int,
    *,
    causal: bool = True,
    window: int | None = None,
    padding: Bool[Tensor, "batch key"] | None = None,
) -> Bool[Tensor, "*batch_and_head query key"]:
    """Mask of the keys that a query at each of these positions may see; none sees padding."""
    keys = torch.arange(n_keys, device=queries.device)
    last = queries if causal else torch.full_like(queries, n_keys - 1)
    mask = keys <= last[:, None]
    mask = mask if window is None else mask & (keys > queries[:, None] - window)
    return mask if padding is None else mask & ~padding[:, None, None]


def select_positions(x: Tensor, positions: Int[Tensor, " some"], dim: int) -> Tensor:
    """An activation at ascending positions along an axis; itself where these are all, which saves copying it twice."""
    return x if len(positions) == x.shape[dim] else x.index_select(dim, positions)


def join_past(
    past: Float[Tensor, "prompt head_index pos d_head"], own: Float[Tensor, "*cell prompt head_index suffix d_head"]
) -> Float[Tensor, "*cell prompt head_index pos d_head"]:
    """Keys (or values) at all positions: those of the earlier run, then each cell's own."""
    before = past[..., : past.shape[-2] - own.shape[-2], :]
    return torch.cat((before.expand(*own.shape[:-2], *before.shape[-2:]), own), -2)


def _aligned(part: Tensor) -> Tensor:
    """Put a part of a weight at the start of a cache line: where factors lie decides the last bits of products."""
    return part if part.data_ptr() % 64 == 0 else part.clone()


def _changed(at: Changes, point: str, x: Heads) -> Heads:
    """Apply the change at a hook point, where positions come before heads."""
    if not at.any(point):
        return x
    return at(point, x.transpose(-2, -3)).transpose(-2, -3)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: attention and an MLP, in sequence or (`parallel`) reading the same stream, as in GPT-NeoX."""

    ln1: Norm
    attn: Attention | None
    ln2: Norm
    mlp: Mlp | None
    parallel: bool = False

    @property
    def attention(self) -> Attention:
        """The attention of a block that must have one."""
        assert self.attn is not None
        return self.attn

    def __call__(self, stream: Float[Tensor, "*rows pos d_model"], at: Changes) -> Float[Tensor, "*rows pos d_model"]:
        """The stream after the block, at all positions."""
        return self.after_heads(stream, None if self.attn is None else self.attn.z(self.ln1(stream), at=at), at)

    def after_heads(
        self,
        stream: Float[Tensor, "*rows d_model"],
        z: Float[Tensor, "*rows head_index d_head"] | None,
        at: Changes = NO_CHANGES,
    ) -> Float[Tensor, "*rows d_model"]:
        """The stream after the block, from the stream before it and head outputs z (None without attention)."""
        if self.attn is None or z is None:
            return stream if self.mlp is None else stream + self.mlp(self.ln2(stream))
        mlp = self.mlp
        of_mlp = None if mlp is None else lambda read: mlp(self.ln2(at(MLP_INPUT, read)), at)
        return after_attention(stream, self.attn.project_out(z), of_mlp, at, parallel=self.parallel)


def after_attention(
    stream: Float[Tensor, "*rows d_model"],
    attention_out: Float[Tensor, "*rows d_model"],
    mlp_of_stream: Callable[[Tensor], Tensor] | None,
    at: Changes,
    *,
    parallel: bool,
) -> Float[Tensor, "*rows d_model"]:
    """The stream after a block, from the stream before it and the contribution of attention.

    `of_mlp` maps a stream to the contribution of the MLP; None: no MLP. Changes go by names within the block.
    """
    attention_out = at("hook_attn_out", attention_out)
    if mlp_of_stream is None:
        return at("hook_resid_post", stream + attention_out)
    if parallel:  # nothing lies between attention and MLP, so there is no hook_resid_mid
        added = at("hook_mlp_out", mlp_of_stream(stream))
        return at("hook_resid_post", stream + attention_out + added)
    stream = at("hook_resid_mid", stream + attention_out)
    return at("hook_resid_post", stream + at("hook_mlp_out", mlp_of_stream(stream)))


@dataclass(frozen=True, kw_only=True)
class OutputPlaces:
    """Places at which outputs are wanted.

    `columns` are the positions that are wanted in at least one sequence, ascending. If sequences differ, `where` is the
    mask of the places, and outputs are rows, sequence by sequence. None: the places are the same in every sequence.
    """

    columns: Int[Tensor, " read"]
    where: Bool[Tensor, "batch pos"] | None = None

    @staticmethod
    def from_mask(where: Bool[Tensor, "batch pos"]) -> "OutputPlaces":
        """The places of a mask, which may differ from sequence to sequence."""
        return OutputPlaces(columns=where.any(0).nonzero()[:, 0], where=where)

    def pick(self, x: Float[Tensor, "batch pos *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation at all positions."""
        return select_positions(x, self.columns, 1) if self.where is None else x[self.where]

    def pick_from_columns(self, x: Float[Tensor, "batch read *rest"]) -> Float[Tensor, "*read_rest"]:
        """Pick these places from an activation at `columns` only."""
        return x if self.where is None else x[self.where[:, self.columns]]
