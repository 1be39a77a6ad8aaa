"""Activation patching by continuing from the changed residual stream: the fast way.

Cells are gathered by the first position that they change and run in chunks, across layers. Cells whose activation is
bit for bit the same in both runs, or that no position that is read can see, are not run at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION
from mnemoscope.interventions.patching.changes import change, entry, is_local
from mnemoscope.interventions.patching.continuation import Past, continued
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.packed import Packed
from mnemoscope.interventions.patching.runs import Patched, Run, recorded

_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A run that is patched, ready to be continued from anywhere.

    Attributes:
        weights: Of the model.
        base: The recorded run, with everything in `changes.places`.
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
    return Stream(weights=weights, base=base, past=Past(keys=k, values=v), read=read)


@torch.no_grad()
def reproduces(
    weights: Packed, model: HookedModel, tokens: Int[Tensor, "prompt pos"], read: Int[Tensor, " read"]
) -> bool:
    """Whether continuing from the embedding gives the logits that the model itself gives."""
    run = recorded(model, tokens, [("resid_pre", 0)], read)
    residual = run["resid_pre", 0][None].clone()
    nothing = [
        residual.new_empty(len(tokens), layer.w_o.shape[0], *tokens.shape[1:], layer.w_o.shape[1])
        for layer in weights.layers
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
