"""What a patch adds to the residual stream, from the activations of the two runs alone.

An activation that is part of the stream adds the difference of the two runs. A neuron adds the difference of its
output times its output weights. Whatever is patched inside a head changes its output z at some queries, and W_O
carries that to the stream; heads of one layer do not act on each other, so each is taken for itself.
"""

from collections.abc import Callable, Sequence

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.site import BY_HEAD, BY_NEURON, EMBEDDINGS, Kind
from mnemoscope.interventions.patching.grid import Cell, Grid
from mnemoscope.interventions.patching.head_changes import LASTING, of_head, reads, z_change
from mnemoscope.interventions.patching.packed import Mlp, Packed
from mnemoscope.interventions.patching.runs import Place, Run

_BEFORE: tuple[Kind, ...] = (*EMBEDDINGS, "resid_pre")
_AFTER: tuple[Kind, ...] = (*BY_NEURON, "mlp_out", "resid_post")


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
    patched: set[Place] = {(kind, layer) for layer in grid.layers for kind in reads(grid.kind)}
    stream: set[Place] = {entry(weights, grid.kind, layer)[1] for layer in grid.layers}
    past: set[Place] = {(kind, layer) for layer in range(len(weights.layers)) for kind in LASTING}
    return {*patched, *stream, *past, ("resid_pre", 0)}


def is_local(grid: Grid) -> bool:
    """Whether a cell changes the stream at one position only, at its own point."""
    return grid.position_axis is not None and grid.kind not in LASTING


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
    new, old = source[kind, layer], base[kind, layer]
    if layer is None or kind not in (*BY_HEAD, *BY_NEURON):
        return (new[:, patched] - old[:, patched]).expand(len(cells), -1, -1, -1)
    block = weights.layers[layer]
    if kind in BY_NEURON:
        assert block.mlp is not None
        act = block.mlp.activation if kind == "pre" else torch.positive
        return _through_neurons(block.mlp, act(new[:, patched]) - act(old[:, patched]), grid, cells)

    def added(head: int, keys: Sequence[int] | None) -> Float[Tensor, "cell prompt changed d_model"]:
        z = z_change(kind, of_head(source, kind, layer, head), of_head(base, kind, layer, head), patched, keys, block)
        return einsum(z, block.w_o[head], "cell prompt pos d_head, d_head d_model -> cell prompt pos d_model")

    return _through_heads(added, len(block.w_o), grid, cells)


def _through_neurons(
    mlp: Mlp, difference: Float[Tensor, "prompt pos d_mlp"], grid: Grid, cells: Sequence[Cell]
) -> Float[Tensor, "cell prompt pos d_model"]:
    if "neuron" not in grid.axes:
        return (difference @ mlp.w_out)[None]
    chosen = torch.tensor([grid.of(cell, "neuron") for cell in cells], device=difference.device)
    pattern = "prompt pos cell, cell d_model -> cell prompt pos d_model"
    return einsum(difference[..., chosen], mlp.w_out[chosen], pattern)


def _through_heads(
    added: Callable[[int, Sequence[int] | None], Tensor], n_heads: int, grid: Grid, cells: Sequence[Cell]
) -> Float[Tensor, "cell prompt changed d_model"]:
    """What cells add: each its own head where heads are swept, all heads together where they are not."""
    rows: dict[int, list[int]] = {}
    for row, cell in enumerate(cells):
        for head in range(n_heads) if "head" not in grid.axes else [grid.of(cell, "head") or 0]:
            rows.setdefault(head, []).append(row)
    result = None
    for head, own in rows.items():
        keys = [grid.of(cells[row], "key") or 0 for row in own] if "key" in grid.axes else None
        part = added(head, keys)
        if result is None:
            result = part.new_zeros(len(cells), *part.shape[1:])
        result[own] += part
    assert result is not None
    return result
