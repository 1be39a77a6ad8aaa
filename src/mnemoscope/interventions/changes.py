"""What a patch adds to the residual stream, from the activations of the two runs alone.

An activation that is part of the stream adds the difference of the two runs. A neuron adds the difference of its
output times its output weights. Whatever is patched inside a head changes its output z at some queries, and W_O
carries that to the stream; heads of one layer do not act on each other, so each is taken for itself.
"""

import math
from collections.abc import Callable, Sequence

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, EMBEDDINGS, Kind
from mnemoscope.interventions.grid import Cell, Grid
from mnemoscope.interventions.packed import Layer, Packed
from mnemoscope.interventions.runs import Place, Run

_BEFORE: tuple[Kind, ...] = (*EMBEDDINGS, "resid_pre")
_AFTER: tuple[Kind, ...] = (*BY_NEURON, "mlp_out", "resid_post")
_READS: dict[Kind, tuple[Kind, ...]] = {
    "q": ("q", "k", "v"),
    "k": ("q", "k", "v"),
    "v": ("v", "pattern"),
    "pattern": ("pattern", "v"),
    "scores": ("scores", "v"),
}
_LASTING: tuple[Kind, ...] = ("k", "v")
"""Kinds that, patched at one position, act on all later ones in the same layer."""


def entry(weights: Packed, kind: Kind, layer: int | None) -> tuple[int, Place]:
    """The point (as numbered in `continuation`) at which a patch changes the stream, and the stream there."""
    layer = layer or 0
    if kind in _BEFORE:
        return 2 * layer, ("resid_pre", layer)
    if kind in _AFTER or not weights.has_mlp:
        return 2 * layer + 2, ("resid_post", layer)
    return 2 * layer + 1, ("resid_mid", layer)


def places(weights: Packed, grid: Grid) -> set[Place]:
    """What has to be recorded of both runs to patch the cells of a grid."""
    patched = {(kind, layer) for layer in grid.layers for kind in _READS.get(grid.kind, (grid.kind,))}
    stream = {entry(weights, grid.kind, layer)[1] for layer in grid.layers}
    past: set[Place] = {(kind, layer) for layer in range(len(weights.layers)) for kind in _LASTING}
    return {*patched, *stream, *past, ("resid_pre", 0)}


def is_local(grid: Grid) -> bool:
    """Whether a cell changes the stream at one position only, at its own point."""
    return grid.position_axis is not None and grid.kind not in _LASTING


def change(
    weights: Packed, grid: Grid, base: Run, source: Run, layer: int | None, cells: Sequence[Cell], start: int
) -> Float[Tensor, "cell prompt changed d_model"]:
    """What the patches of some cells of one layer add to the stream, from position `start` on.

    Args:
        weights: The model.
        grid: The cells.
        base: The run that is patched.
        source: The run that the activations come from.
        layer: The layer of the cells.
        cells: Which; all of them at position (or query) `start` where that is swept.
        start: The first position that is patched.

    Returns:
        One position where `is_local(grid)`, else all from `start` on.
    """
    kind, patched = grid.kind, slice(start, start + 1 if grid.position_axis else None)
    if kind not in (*BY_HEAD, *BY_NEURON):
        place = (kind, layer)
        difference = source[place][:, patched] - base[place][:, patched]
        return difference.expand(len(cells), *difference.shape)
    assert layer is not None
    block = weights.layers[layer]
    if kind in BY_NEURON:
        function = weights.activation if kind == "pre" else torch.positive
        difference = function(source[kind, layer][:, patched]) - function(base[kind, layer][:, patched])
        return _through_neurons(block, difference, [grid.of(cell, "neuron") for cell in cells])

    def of_head(head: int, keys: Sequence[int] | None) -> Tensor:
        runs = [{name: run[name, layer] for name in _READS.get(kind, (kind,))} for run in (source, base)]
        by_head = [{name: _head(name, value, head) for name, value in run.items()} for run in runs]
        z = _z_change(kind, *by_head, patched, keys, block.scale)
        return einsum(z, block.w_o[head], "cell prompt pos d_head, d_head d_model -> cell prompt pos d_model")

    return _by_head(grid, cells, len(block.w_o), of_head)


def _by_head(
    grid: Grid, cells: Sequence[Cell], n_heads: int, of_head: Callable[[int, Sequence[int] | None], Tensor]
) -> Float[Tensor, "cell prompt changed d_model"]:
    """The changes of cells, from those of single heads: of one head a cell, or of all of them together."""
    keys = None if "key" not in grid.axes else [grid.of(cell, "key") or 0 for cell in cells]
    if "head" not in grid.axes:
        total = of_head(0, keys)
        for head in range(1, n_heads):
            total = total + of_head(head, keys)
        return total
    heads = [grid.of(cell, "head") or 0 for cell in cells]
    result: Tensor | None = None
    for head in sorted(set(heads)):
        rows = [row for row, other in enumerate(heads) if other == head]
        part = of_head(head, None if keys is None else [keys[row] for row in rows])
        result = part.new_empty(len(cells), *part.shape[1:]) if result is None else result
        result[rows] = part
    assert result is not None
    return result


def _head(kind: Kind, activation: Tensor, head: int) -> Tensor:
    return activation[:, head] if kind in ATTENTION else activation[:, :, head]


def _through_neurons(
    layer: Layer, difference: Float[Tensor, "prompt pos d_mlp"], neurons: Sequence[int | None]
) -> Float[Tensor, "cell prompt pos d_model"]:
    assert layer.w_out is not None
    if None in neurons:
        return (difference @ layer.w_out)[None]
    chosen = torch.tensor(neurons, device=difference.device)
    pattern = "prompt pos cell, cell d_model -> cell prompt pos d_model"
    return einsum(difference[..., chosen], layer.w_out[chosen], pattern)


def _z_change(
    kind: Kind,
    source: dict[Kind, Tensor],
    base: dict[Kind, Tensor],
    patched: slice,
    keys: Sequence[int] | None,
    scale: float,
) -> Float[Tensor, "cell prompt changed d_head"]:
    """How the output of one head changes; `keys`: one cell a key, only the attention to which is patched."""
    if kind == "z":
        return (source["z"] - base["z"])[None, :, patched]
    queries = slice(patched.start, None)
    if kind == "v":
        difference = source["v"][:, patched] - base["v"][:, patched]
        return (base["pattern"][:, queries, patched] @ difference)[None]
    if kind == "q":
        before, after = (_attended(run["q"], base["k"], base["v"], patched, scale) for run in (base, source))
        return (after - before)[None]
    if kind == "k":
        k = base["k"].clone()
        k[:, patched] = source["k"][:, patched]
        before, after = (_attended(base["q"], each, base["v"], queries, scale) for each in (base["k"], k))
        return (after - before)[None]
    new, old = source[kind][:, patched], base[kind][:, patched]
    if keys is not None:
        row, at = torch.arange(len(keys), device=new.device), torch.tensor(keys, device=new.device)
        mixed = old.expand(len(keys), *old.shape).clone()
        mixed[row, ..., at] = new[..., at].movedim(-1, 0)
        new = mixed
    if kind == "scores":
        new, old = new.softmax(-1), old.softmax(-1)
    result = (new - old) @ base["v"]
    return result if keys is not None else result[None]


def _attended(
    q: Float[Tensor, "prompt pos d_head"],
    k: Float[Tensor, "prompt pos d_head"],
    v: Float[Tensor, "prompt pos d_head"],
    queries: slice,
    scale: float,
) -> Float[Tensor, "prompt query d_head"]:
    n_pos = k.shape[1]
    scores = q[:, queries] @ k.mT / scale
    future = torch.ones(n_pos, n_pos, dtype=torch.bool, device=k.device).triu(1)[queries]
    return scores.masked_fill(future, -math.inf).softmax(-1) @ v
