"""The first layer from tables, where a task has few tokens and positions.

The first layer reads one of few *cells*, a token at a position. Scores between cells, and what a cell writes when it is
attended to, are computed once for all sequences; a pass then only picks them.

A sequence is a bag of tokens if its only query is a silent token (with a zero embedding) at its end, and the model has
no positions. With c_v the count of token v in it, s_v its score and x_v its value,

    z = Σ_v c_v exp(s_v) x_v / Σ_v c_v exp(s_v)         (linear attention: z = Σ_v c_v s_v x_v)

for all sequences and heads in one product of counts and a table with a row for each token. The table is in float64,
so that a token whose score is hundreds below another's still counts where the other does not occur.
"""

import math
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.engine.block import QKV, Attention, Block, OutputPlaces, mix_pattern
from mnemoscope.engine.changes import BEFORE_BLOCKS, BEFORE_QUERIES, NO_CHANGES, Changes
from mnemoscope.engine.pointwise import safe_softmax

MAX_CELLS = 128
"""Tokens times positions up to which tables pay."""
FEW_KEYS = 4
"""Positions up to which keys are picked one by one; of more keys a pattern over all cells is multiplied at once."""


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """The first block, its input weights, and whether the model has no other block (`is_only`).

    `w_pos` is None without learned positions. `silent` is a token with a zero embedding that ends every sequence; None:
    no such token.
    """

    w_e: Float[Tensor, "d_input d_model"]
    w_pos: Float[Tensor, "n_ctx d_model"] | None
    block: Block
    silent: int | None
    is_only: bool


def stream_after_attention(
    first: FirstLayer, inputs: Inputs, read: OutputPlaces | None, at: Changes
) -> Float[Tensor, "*rows d_model"] | None:
    """The stream after the attention of the first block, from tables; None where tables do not pay.

    A model with one block gets it where it is read (None: everywhere), other models at all positions. Unless `at` is
    `NONE`, tables serve only models of one layer without a change.
    """
    if at is not NO_CHANGES and (at.by_point or not first.is_only):
        return None
    if first.block.parallel:  # its MLP reads the stream before attention
        return None
    read = read if first.is_only else None
    if _is_single_silent_query(first, inputs, read):
        return _counted(first, inputs)
    if not _pays(first, inputs):
        return None
    cells = _build_tables(first, inputs.shape[1])
    return cells.after_attention(inputs, read)


def head_outputs(
    first: FirstLayer, inputs: Inputs, queries: Int[Tensor, " query"] | None, at: Changes
) -> Float[Tensor, "batch query head_index d_head"] | None:
    """Head outputs z of the first block, from tables; None where tables do not pay.

    `queries` are positions in ascending order (None: all). Changes go by full names.
    """
    here = at.of_block(0)
    if first.block.attn is None or not first.block.attn.fused:  # picking scores has no rule for `vmap`
        return None
    if at.any(*BEFORE_BLOCKS) or here.any(*BEFORE_QUERIES, "attn.hook_q") or not _pays(first, inputs):
        return None
    scores, values = _build_tables(first, inputs.shape[1]).scores_and_values(inputs, queries)
    scores = here("attn.hook_attn_scores", scores)
    pattern = here("attn.hook_pattern", first.block.attention.pattern(scores, here))
    return here("attn.hook_z", (pattern @ values).transpose(1, 2))


def _pays(first: FirstLayer, inputs: Inputs) -> bool:
    """True for few cells and plain softmax attention: no windows, caps, rotary or relative positions, shared keys."""
    attn, positions = first.block.attn, first.w_pos
    if attn is None or positions is None or inputs.is_floating_point():
        return False
    n_cells = len(first.w_e) * len(positions[: inputs.shape[1]])
    moved = attn.rotary is not None or attn.relative is not None
    plain = not (attn.linear or attn.soft_cap or attn.window or moved) and attn.n_sharing == 1
    return plain and n_cells <= min(MAX_CELLS, inputs.numel())


@dataclass(frozen=True, kw_only=True)
class LookupTables:
    """Tables over cells; a cell's number is its token times `n_pos`, the positions of a sequence, plus its position.

    Attributes:
        stream: The stream before the first layer, of each cell.
        scores: Scores of a query cell for a key cell; minus infinity if the query may not see the key.
        written: Contribution of a key cell to the stream when it is attended to, heads one after the other.
    """

    n_pos: int
    stream: Float[Tensor, "cell d_model"]
    scores: Float[Tensor, "head_index query_cell key_cell"]
    values: Float[Tensor, "head_index cell d_head"]
    written: Float[Tensor, "heads_and_cells d_model"]
    attention: Attention

    def cell_numbers(self, inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Number of the cell at every position."""
        return inputs * self.n_pos + torch.arange(self.n_pos, device=inputs.device)

    def scores_and_values(
        self, inputs: Int[Tensor, "batch pos"], queries: Int[Tensor, " query"] | None
    ) -> tuple[Float[Tensor, "batch head_index query pos"], Float[Tensor, "batch head_index pos d_head"]]:
        """Scores of some queries (None: all) for all keys, and the values of the keys."""
        at, (n_heads, n_cells, _) = self.cell_numbers(inputs), self.scores.shape
        head = torch.arange(n_heads, device=at.device)[:, None]
        own = at if queries is None else at[:, queries]
        pairs = own[:, :, None] * n_cells + at[:, None]
        scores = self.scores.flatten().take(pairs[:, None] + head[:, None] * n_cells**2)
        return scores, F.embedding(at[:, None] + head * n_cells, self.values.flatten(0, 1))

    def after_attention(
        self, inputs: Int[Tensor, "batch pos"], read: OutputPlaces | None
    ) -> Float[Tensor, "*rows d_model"]:
        """The stream after attention, where it is read (None: everywhere)."""
        few = self.n_pos <= FEW_KEYS and self.attention.fused  # picking scores has no rule for `vmap`
        if few and (read is None or read.where is None):
            own = self.cell_numbers(inputs) if read is None else self.cell_numbers(inputs)[:, read.columns]
            scores, values = self.scores_and_values(inputs, None if read is None else read.columns)
            # as many small products as there are sequences and heads take longer than one sum
            z = (self.attention.pattern(scores)[..., None] * values[..., None, :, :]).sum(-2)
            return F.embedding(own, self.stream) + self.attention.project_out(z.transpose(1, 2))
        at, (n_heads, n_cells, _) = self.cell_numbers(inputs), self.scores.shape
        absent = torch.full((len(inputs), n_cells), -math.inf, dtype=self.stream.dtype, device=at.device)
        absent = absent.scatter(1, at, 0.0)[:, None, None]
        if read is not None and read.where is not None:
            absent, at = absent[read.where.nonzero()[:, 0], 0], at[read.where]
        elif read is not None:
            at = at[:, read.columns]
        own_scores = F.embedding(at, self.scores.transpose(0, 1).flatten(1)).unflatten(-1, (n_heads, n_cells))
        own_scores = own_scores + absent
        pattern = own_scores.softmax(-1) if self.attention.masked is None else safe_softmax(own_scores)
        pattern = mix_pattern(pattern, own_scores, self.attention.mix).flatten(-2)
        return F.embedding(at, self.stream) + F.linear(pattern, self.written.T, self.attention.b_o)


def _build_tables(first: FirstLayer, n_pos: int) -> LookupTables:
    """The tables for sequences of `n_pos` tokens."""
    attn, positions = first.block.attention, first.w_pos
    assert positions is not None
    stream = (first.w_e[:, None] + positions[:n_pos]).flatten(0, 1)
    n_cells, n_heads = len(stream), len(attn.w_o)
    weights = attn.w_qkv.unflatten(0, (3 * n_heads, -1)).transpose(1, 2).contiguous()
    source = first.block.ln1(stream).expand(3 * n_heads, -1, -1)
    q, k, v = torch.baddbmm(attn.b_qkv.unflatten(0, (3 * n_heads, 1, -1)), source, weights).split(n_heads)
    hidden = torch.zeros(n_cells, n_cells, dtype=q.dtype, device=q.device)
    if attn.causal:
        place = torch.arange(n_pos, device=q.device).repeat(n_cells // n_pos)
        hidden = hidden.masked_fill(place > place[:, None], -math.inf)
    if attn.masked is not None:
        cells = slice(attn.masked * n_pos, (attn.masked + 1) * n_pos)
        hidden[:, cells] = -math.inf
    scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=1 / attn.scale)
    written = torch.bmm(v, attn.w_o).flatten(0, 1)
    return LookupTables(n_pos=n_pos, stream=stream, scores=scores, values=v, written=written, attention=attn)


def _is_single_silent_query(first: FirstLayer, inputs: Inputs, read: OutputPlaces | None) -> bool:
    """True if the only query is a silent token at the end of every sequence, in a one-layer model without positions.

    The kernels that count have no rule for `vmap`.
    """
    attn = first.block.attn
    if first.silent is None or not first.is_only or attn is None or not attn.fused or read is None:
        return False
    if attn.mix < 1 or attn.masked is not None:
        return False
    at_the_end = read.where is None and read.columns.tolist() == [inputs.shape[1] - 1]
    return at_the_end and bool((inputs[:, -1] == first.silent % len(first.w_e)).all())


def _counted(first: FirstLayer, inputs: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch 1 d_model"]:
    """The stream of the silent query after attention over a bag of tokens."""
    attn, token, n_heads = first.block.attention, first.w_e, len(first.block.attention.w_o)
    assert first.silent is not None
    source = first.block.ln1(token)

    def heads(kind: QKV, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows head_index d_head"]:
        weight, bias = attn.input_projection(kind)
        weight = weight.unflatten(0, (n_heads, -1)).transpose(1, 2)
        return einsum(x, weight, "... d_model, head d_model width -> ... head width") + bias.unflatten(0, (n_heads, -1))

    silent = heads("q", source[first.silent])
    scores = einsum(silent, heads("k", source), "head width, token head width -> token head").double()
    values = heads("v", source).double()
    counts = scores.new_zeros(len(inputs), len(token)).scatter_add_(1, inputs, scores.new_ones(inputs.shape))
    if attn.linear:
        z = (counts @ (scores[..., None] * values).flatten(1)).unflatten(1, (n_heads, -1))
    else:
        scores = scores / attn.scale
        weights = (scores - scores.detach().amax(0)).exp()
        table = torch.cat(((weights[..., None] * values).flatten(1), weights), 1)
        total = (counts @ table).split((values[0].numel(), n_heads), 1)
        z = total[0].unflatten(1, (n_heads, -1)) / total[1][..., None]
    return (token[first.silent] + attn.project_out(z.to(token)))[:, None]
