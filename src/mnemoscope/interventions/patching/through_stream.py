"""Activation patching by continuing from the changed residual stream: the fast way.

What a patch adds to the stream follows from the activations of the two runs alone. An activation that is part of the
stream adds the difference of the two runs. A neuron adds the difference of its output times its output weights.
Whatever is patched inside a head changes its output z at some queries, and W_O carries that to the stream; heads of one
layer do not act on each other, so each is taken for itself.

Cells are gathered by the first position that they change and run in chunks, across layers. Cells whose activation is
bit for bit the same in both runs, or that no position that is read can see, are not run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.layers import Mlp, attended, softmax
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, EMBEDDINGS, Kind
from mnemoscope.interventions.patching.grid import Cell, Grid
from mnemoscope.interventions.patching.measuring import Patched
from mnemoscope.interventions.patching.packed import Layer, Packed, Past, continued
from mnemoscope.interventions.recordings import Place, Run, recorded_run

_TOLERANCE = 1e-4
_READS: Mapping[Kind, tuple[Kind, ...]] = {
    "q": ("q", "k", "v"),
    "k": ("q", "k", "v"),
    "v": ("v", "pattern"),
    "pattern": ("pattern", "v"),
    "scores": ("scores", "v"),
}
LASTING: tuple[Kind, ...] = ("k", "v")
"""Kinds that, patched at one position, act at all later ones of the same layer."""

Head = Mapping[Kind, Tensor]
"""Activations of one head: `prompt pos d_head`, or `prompt query key`."""

_BEFORE: tuple[Kind, ...] = (*EMBEDDINGS, "resid_pre")
_AFTER: tuple[Kind, ...] = (*BY_NEURON, "mlp_out", "resid_post")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A run that is patched, ready to be continued from anywhere.

    Attributes:
        weights: Of the model.
        base: The recorded run, with everything in `places`.
        past: Its keys and values.
        read: Positions whose logits are wanted, ascending.
    """

    weights: Packed
    base: Run
    past: Past
    read: Int[Tensor, " read"]


def stream(weights: Packed, base: Run, read: Int[Tensor, " read"]) -> Stream:
    """Lay out the keys and values of a run."""
    k, v = (
        [base[kind, layer].transpose(1, 2).contiguous() for layer in range(len(weights.layers))] for kind in ("k", "v")
    )
    k = [layer.turned(keys, slice(keys.shape[2])) for layer, keys in zip(weights.layers, k, strict=True)]
    return Stream(weights=weights, base=base, past=Past(keys=k, values=v), read=read.to(weights.b_u.device))


@torch.no_grad()
def reproduces(weights: Packed, model: HookedModel, tokens: Inputs, read: Int[Tensor, " read"]) -> bool:
    """Whether continuing from the embedding gives the logits that the model itself gives."""
    run = recorded_run(model, tokens, [("resid_pre", 0)], read)
    residual = run["resid_pre", 0][None].clone()
    nothing = [
        residual.new_empty(len(tokens), layer.n_kv, tokens.shape[1], layer.w_o.shape[1]) for layer in weights.layers
    ]
    entered = [1] * (2 * len(weights.layers) + 1)
    logits = continued(weights, residual, entered, Past(keys=nothing, values=nothing), read)[0]
    scale = max(1.0, float(run.logits.nan_to_num(posinf=0, neginf=0).abs().max()))
    return bool(torch.allclose(logits, run.logits, rtol=_TOLERANCE, atol=_TOLERANCE * scale))


@torch.no_grad()
def by_stream(run: Stream, source: Run, grid: Grid, *, n_cells: Callable[[int], int]) -> Iterator[Patched]:
    """The cells of a grid that change anything, on all prompts of a run.

    Args:
        run: What is patched.
        source: The run that the activations come from.
        grid: The cells.
        n_cells: How many cells that start at a position are run at once.
    """
    for start, numbers in _by_start(run, source, grid):
        read = run.read[run.read >= start]
        size = n_cells(start)
        for first in range(0, len(numbers), size):
            chunk = numbers[first : first + size]
            residual, entered = _entered(run, source, grid, chunk, start)
            logits = continued(run.weights, residual, entered, run.past, read)
            yield Patched(cells=chunk, first=len(run.read) - len(read), logits=logits)


def _by_start(run: Stream, source: Run, grid: Grid) -> Iterator[tuple[int, list[int]]]:
    """The first position that cells change, and the cells in the order of their layers."""
    differs = {layer: _differs(grid, run.base, source, layer) for layer in grid.layers}
    gathered: dict[int, list[int]] = {}
    read = set(run.read.tolist())
    for number, cell in enumerate(grid.cells):
        layer = grid.of(cell, "layer")
        start = grid.of(cell, grid.position_axis)
        if start is None:
            start = next((pos for pos, changed in enumerate(differs[layer]) if changed), None)
        if start is None or not differs[layer][start] or start > max(read):
            continue
        if (grid.of(cell, "key") or 0) > start:
            continue
        at_end = entry(run.weights, grid.kind, layer)[0] >= 2 * len(run.weights.layers) - 1
        if not (at_end and is_local(grid) and start not in read):
            gathered.setdefault(start, []).append(number)
    for start, numbers in sorted(gathered.items()):
        yield start, sorted(numbers, key=lambda number: grid.of(grid.cells[number], "layer") or 0)


def _differs(grid: Grid, base: Run, source: Run, layer: int | None) -> list[bool]:
    """At which positions (or queries) the two runs differ; equal prefixes give equal numbers, bit for bit."""
    changed = base[grid.kind, layer] != source[grid.kind, layer]
    axis = 2 if grid.kind in ATTENTION else 1
    return changed.movedim(axis, 0).flatten(1).any(1).tolist()


def _entered(run: Stream, source: Run, grid: Grid, chunk: Sequence[int], start: int) -> tuple[Tensor, list[int]]:
    """The changed stream of every cell at its point, and how many cells have entered up to each point."""
    stream = run.base["resid_pre", 0][:, start:]
    residual = stream.new_empty(len(chunk), *stream.shape)
    entered = [0] * (2 * len(run.weights.layers) + 1)
    done = 0
    for layer, numbers in groupby(chunk, lambda number: grid.of(grid.cells[number], "layer")):
        cells = [grid.cells[number] for number in numbers]
        point, place = entry(run.weights, grid.kind, layer)
        new = residual[done : done + len(cells)]
        new[:] = run.base[place][:, start:]
        added = change(run.weights, grid, run.base, source, layer, cells, start)
        new[:, :, : added.shape[2]] += added
        done += len(cells)
        entered[point:] = [done] * (len(entered) - point)
    return residual, entered


def entry(weights: Packed, kind: Kind, layer: int | None) -> tuple[int, Place]:
    """The point (as numbered in `packed`) at which a patch changes the stream, and the stream there."""
    layer = layer or 0
    if kind in _BEFORE:
        return 2 * layer, ("resid_pre", layer)
    if kind in _AFTER or not weights.has_middle:
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
    after, before = source[kind, layer], base[kind, layer]
    if layer is None or kind not in (*BY_HEAD, *BY_NEURON):
        return (after[:, patched] - before[:, patched]).expand(len(cells), -1, -1, -1)
    block = weights.layers[layer]
    if kind in BY_NEURON:
        assert block.mlp is not None
        act = block.mlp.activation if kind == "pre" else torch.positive
        return _through_neurons(block.mlp, act(after[:, patched]) - act(before[:, patched]), grid, cells)

    def added(head: int, keys: Sequence[int] | None) -> Float[Tensor, "cell prompt changed d_model"]:
        new, old = (of_head(run, kind, layer, head, block.n_sharing) for run in (source, base))
        z = z_change(kind, new, old, patched, keys, block)
        return einsum(z, block.w_o[head], "cell prompt pos d_head, d_head d_model -> cell prompt pos d_model")

    n_sharing = block.n_sharing if kind in LASTING else 1
    return _through_heads(added, len(block.w_o), n_sharing, grid, cells)


def _through_neurons(
    mlp: Mlp, difference: Float[Tensor, "prompt pos d_mlp"], grid: Grid, cells: Sequence[Cell]
) -> Float[Tensor, "cell prompt pos d_model"]:
    if "neuron" not in grid.axes:
        return (difference @ mlp.w_out)[None]
    chosen = torch.tensor([grid.of(cell, "neuron") for cell in cells], device=difference.device)
    pattern = "prompt pos cell, cell d_model -> cell prompt pos d_model"
    return einsum(difference[..., chosen], mlp.w_out[chosen], pattern)


def _through_heads(
    added: Callable[[int, Sequence[int] | None], Tensor],
    n_heads: int,
    n_sharing: int,
    grid: Grid,
    cells: Sequence[Cell],
) -> Float[Tensor, "cell prompt changed d_model"]:
    """What cells add: each its own head, or all that share its keys and values, where heads are swept; all heads
    together where they are not.
    """
    rows: dict[int, list[int]] = {}
    for row, cell in enumerate(cells):
        first = (grid.of(cell, "head") or 0) * n_sharing
        for head in range(n_heads) if "head" not in grid.axes else range(first, first + n_sharing):
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


def reads(kind: Kind) -> tuple[Kind, ...]:
    """What has to be known of a run to patch a kind of activation."""
    return _READS.get(kind, (kind,))


def of_head(run: Run, kind: Kind, layer: int, head: int, n_sharing: int = 1) -> Head:
    """What has to be known of one head, of which so many share keys and values."""

    def number(name: Kind) -> int:
        return head // n_sharing if name in LASTING else head

    return {name: run[name, layer].select(1 if name in ATTENTION else 2, number(name)) for name in reads(kind)}


def z_change(
    kind: Kind, source: Head, base: Head, patched: slice, keys: Sequence[int] | None, layer: Layer
) -> Float[Tensor, "cell prompt changed d_head"]:
    """The change of z.

    Args:
        kind: What is patched.
        source: Where it comes from.
        base: Where it goes.
        patched: At which positions or queries: one, or all from one on.
        keys: One cell a key, only the attention to which is patched; None: one cell, all keys.
        layer: The scale of attention.

    Returns:
        At the patched positions; for k and v at all from the first patched one on.
    """
    later = slice(patched.start, None)
    if kind == "z":
        return (source["z"] - base["z"])[None, :, patched]
    if kind == "v":
        difference = source["v"][:, patched] - base["v"][:, patched]
        return (base["pattern"][:, later, patched] @ difference)[None]
    if kind == "q":
        return (_z(source["q"], base["k"], base["v"], patched, layer) - _z(*_qkv(base), patched, layer))[None]
    if kind == "k":
        k = base["k"].clone()
        k[:, patched] = source["k"][:, patched]
        return (_z(base["q"], k, base["v"], later, layer) - _z(*_qkv(base), later, layer))[None]
    new, old = source[kind][None, :, patched], base[kind][None, :, patched]
    if keys is not None:
        at = torch.tensor(keys, device=new.device)
        chosen = torch.arange(new.shape[-1], device=new.device) == at[:, None, None, None]
        new = torch.where(chosen, new, old)
    if kind == "scores":
        new, old = softmax(new), softmax(old)
    return (new - old) @ base["v"]


def _qkv(head: Head) -> tuple[Tensor, Tensor, Tensor]:
    return head["q"], head["k"], head["v"]


def _z(
    q: Float[Tensor, "prompt pos d_head"],
    k: Float[Tensor, "prompt pos d_head"],
    v: Float[Tensor, "prompt pos d_head"],
    queries: slice,
    layer: Layer,
) -> Float[Tensor, "prompt query d_head"]:
    where = torch.arange(k.shape[1], device=k.device)[queries]
    q, k = layer.turned(q[:, queries], where), layer.turned(k, slice(k.shape[1]))
    return attended(q @ k.mT / layer.scale, v, where)
