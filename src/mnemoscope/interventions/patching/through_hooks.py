"""Activation patching through the model's hooks: any hooked model, one forward pass for many cells.

The prompts are repeated once a cell, and each repetition is patched at its own cell, whatever layer that lies in.
Hooks that are on the model act first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.runs import Patched, Run
from mnemoscope.interventions.writing import writing


@torch.no_grad()
def by_hooks(
    model: HookedModel,
    tokens: Int[Tensor, "prompt pos"],
    source: Run,
    grid: Grid,
    read: Int[Tensor, " read"],
    *,
    n_cells: int,
) -> Iterator[Patched]:
    """Every cell of a grid on some prompts.

    Args:
        model: Any hooked model.
        tokens: The prompts that activations are patched into.
        source: The run that the activations come from, recorded at the grid's places.
        grid: The cells.
        read: Positions whose logits are wanted.
        n_cells: How many cells one forward pass takes.
    """
    numbers = range(len(grid.cells))
    for start in range(0, len(numbers), n_cells):
        chunk = numbers[start : start + n_cells]
        hooks = [
            (grid.hook(layer), _hook(grid, chunk, layer, source[grid.kind, layer]))
            for layer in {grid.of(grid.cells[number], "layer") for number in chunk}
        ]
        with writing(model, hooks) as completed:
            logits = model.run_with_hooks(tokens.repeat(len(chunk), 1), fwd_hooks=completed)
        logits = logits.unflatten(0, (len(chunk), len(tokens))).index_select(2, read.to(logits.device))
        yield Patched(cells=chunk, first=0, logits=logits)


def _hook(grid: Grid, chunk: Sequence[int], layer: int | None, source: Tensor) -> Callable[..., Tensor]:
    """What patches the repetitions whose cell lies in `layer`."""

    def patch(activation: Tensor, hook: Any) -> Tensor:
        shape = activation.shape[1:]
        result = activation.expand(len(chunk) * len(source), *shape).clone()
        for block, number in zip(result.split(len(source)), chunk, strict=True):
            cell = grid.cells[number]
            if grid.of(cell, "layer") == layer:
                place = (slice(None), *grid.index(cell))
                block[place] = source[place]
        return result

    return patch
