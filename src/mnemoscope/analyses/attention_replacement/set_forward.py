"""The forward pass with set attention patterns, from a changed pattern on.

A *trial* differs from an intact run in the pattern of
one head. Then a position is run in a layer only if it differs from the intact run there (its row changed, or it sees a
position that differs) and a position that is read can see it through the layers above. Set patterns are mostly zero,
so that few positions are left; where attention is learned, every query sees all keys up to itself. All else is kept
from the intact run. Trials are stacked along a cell axis, and positions are rows of one matrix across all cells.

Equal to the hooked way to 1e-5 in float32 (tested).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.attention_replacement.set_layer import (
    Patterns,
    Projections,
    after_mlp,
    projections,
    z_of,
)
from mnemoscope.engine.block import Block
from mnemoscope.engine.pointwise import project
from mnemoscope.engine.transformer import Transformer

DENSE = 0.8
"""From this share of positions that differ on, all are run: gathering them costs more than it saves."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The kept part of a layer of the intact run: the stream before it and after its attention, and the rest."""

    before: Float[Tensor, "batch pos d_model"]
    middle: Float[Tensor, "batch pos d_model"]
    patterns: Patterns
    projections: Projections


@dataclass(frozen=True, kw_only=True)
class Intact:
    """A run that trials differ from.

    `needed` marks for every layer the positions whose stream after it influences an output that is read. `read` are the
    positions at which `outputs` are kept.
    """

    kept: Sequence[Kept]
    needed: Sequence[Bool[Tensor, "batch pos"]]
    read: Int[Tensor, " read"]
    outputs: Float[Tensor, "batch read d_output"]


def intact(
    weights: Transformer,
    stream: Float[Tensor, "batch pos d_model"],
    patterns: Sequence[Patterns],
    where: Bool[Tensor, "batch pos"],
    read: Int[Tensor, " read"],
    below: Sequence[Kept] = (),
) -> Intact:
    """Run a model with set patterns.

    `stream` is the residual stream before the first layer, or before the one after `below`: the lower layers of a run
    that is the same up to there. Outputs are wanted at the positions `where`; `read` lists those wanted in some
    sequence.
    """
    kept = [*below]
    everywhere = torch.arange(stream.shape[1], device=stream.device)
    for block, own in zip(weights.blocks[len(below) :], patterns[len(below) :], strict=True):
        qkv, attn = projections(block, stream, own.learned), block.attention
        alone = Projections(**{name: value[None] for name, value in vars(qkv).items()})
        middle = stream + project(z_of(own, alone, attn, everywhere)[0], attn.w_o.flatten(0, 1), attn.b_o)
        kept.append(Kept(before=stream, middle=middle, patterns=own, projections=qkv))
        stream = after_mlp(block, middle.flatten(0, 1).clone()).view_as(middle)
    needed = [where]
    for own in reversed(patterns[1:]):
        needed.insert(0, needed[0] | _any(own.sees.mT, needed[0][None])[0])
    return Intact(kept=kept, needed=needed, read=read, outputs=weights.unembedded(stream[:, read]))


def continued(
    weights: Transformer,
    run: Intact,
    index: int,
    head: int,
    rows: Float[Tensor, "cell batch query key"],
    learned: Float[Tensor, "batch query key"] | None = None,
) -> Float[Tensor, "cell batch read d_output"]:
    """Outputs of trials that differ from a run in the pattern of one head of the layer `index`, where outputs are read.

    `rows` are that pattern in every cell; rows of NaN are those of the intact run. `learned` is the head's attention in
    the intact run, where none is set.
    """
    block, kept = weights.blocks[index], run.kept[index]
    attn = block.attention
    change = (rows - (kept.patterns.rows[:, head] if learned is None else learned)).nan_to_num()
    live = (change != 0).any(-1) & run.needed[index]
    z = change @ attn.heads(kept.projections.v)[:, head]
    at = _numbers(live)
    stream = _of_intact(kept.middle, at) + z.flatten(0, 2).index_select(0, at) @ attn.w_o[head]
    stream = after_mlp(block, stream)
    above = zip(weights.blocks[index + 1 :], run.kept[index + 1 :], run.needed[index + 1 :], strict=True)
    for block, kept, needed in above:
        live, stream = _through(block, kept, needed, live, stream)
    outputs = run.outputs.repeat(len(rows), 1, 1, 1)
    outputs.flatten(0, 2)[_numbers(live[:, :, run.read])] = weights.unembedded(stream)
    return outputs


def _through(
    block: Block,
    kept: Kept,
    needed: Bool[Tensor, "batch pos"],
    live: Bool[Tensor, "cell batch pos"],
    stream: Float[Tensor, "row d_model"],
) -> tuple[Bool[Tensor, "cell batch pos"], Float[Tensor, "row_after d_model"]]:
    """The positions that differ from the intact run after a layer and are needed there, and their stream.

    `live` are the positions that differ before the layer, and `stream` is the stream at these.
    """
    if live.sum() > DENSE * live.numel():
        everywhere = torch.ones_like(live)
        stream = _moved(kept.before, live, stream, everywhere)
        live = everywhere
    after = (live | _any(kept.patterns.sees, live)) & needed
    before, at = _numbers(live), _numbers(after)
    attn = block.attention
    own = vars(projections(block, stream, kept.patterns.learned))
    parts = {name: _put(old, before, own[name], len(live)) for name, old in vars(kept.projections).items()}
    queries = after.flatten(0, 1).any(0).nonzero()[:, 0]
    z = z_of(kept.patterns, Projections(**parts), attn, queries).flatten(0, 2)
    if len(at) < len(z):
        z = z.index_select(0, _numbers(after[:, :, queries]))
    stream = _moved(kept.before, live, stream, after)
    return after, after_mlp(block, stream.add_(project(z, attn.w_o.flatten(0, 1), attn.b_o)))


def _moved(
    kept: Float[Tensor, "batch pos d_model"],
    live: Bool[Tensor, "cell batch pos"],
    stream: Float[Tensor, "row d_model"],
    after: Bool[Tensor, "cell batch pos"],
) -> Float[Tensor, "row_after d_model"]:
    """The stream of the live positions at other ones; at those that are not live, that of the intact run."""
    if torch.equal(live, after):
        return stream
    at = _numbers(after)
    result = _of_intact(kept, at)
    both = live & after
    return result.index_copy_(
        0, _numbers(both.flatten()[at]), stream.index_select(0, _numbers(both.flatten()[_numbers(live)]))
    )


def _any(
    sees: Bool[Tensor, "batch query key"], which: Bool[Tensor, "cell batch key"]
) -> Bool[Tensor, "cell batch query"]:
    """True if a query sees some of the keys."""
    return einsum(sees.float(), which.float(), "batch query key, cell batch key -> cell batch query") > 0


def _numbers(which: Bool[Tensor, "*axes"]) -> Int[Tensor, " row"]:
    """The numbers of the chosen entries, counted over all axes."""
    return which.flatten().nonzero()[:, 0]


def _of_intact(values: Float[Tensor, "batch pos width"], at: Int[Tensor, " row"]) -> Float[Tensor, "row width"]:
    """The values of the intact run at these positions of cells."""
    return values.flatten(0, 1).index_select(0, at % (len(values) * values.shape[1]))


def _put(
    values: Float[Tensor, "batch pos width"], at: Int[Tensor, " row"], new: Float[Tensor, "row width"], n_cells: int
) -> Float[Tensor, "cell batch pos width"]:
    """The values of every cell: those of the intact run, and new rows at some positions."""
    if len(at) < n_cells * len(values) * values.shape[1]:
        new = values.repeat(n_cells, 1, 1, 1).flatten(0, 2).index_copy_(0, at, new)
    return new.view(n_cells, *values.shape)
