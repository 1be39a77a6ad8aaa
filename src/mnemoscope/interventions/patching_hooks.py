"""Activation patching through the model's hooks: any hooked model, one forward pass for many cells.

The prompts are repeated once a cell, and each repetition is patched at its own cell, whatever layer that lies in.
Hooks that are on the model act first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.grid import Grid
from mnemoscope.interventions.runs import Run


@dataclass(frozen=True, kw_only=True)
class Patched:
    """Logits under some patches.

    Attributes:
        cells: Numbers of the cells in the grid.
        first: At the positions read from this one on; before it nothing changes.
        logits: Of every cell on every prompt.
    """

    cells: Sequence[int]
    first: int
    logits: Float[Tensor, "cell prompt read d_vocab"]


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
        logits = model.run_with_hooks(tokens.repeat(len(chunk), 1), fwd_hooks=hooks)
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


@torch.no_grad()
def check_heard(model: HookedModel, tokens: Int[Tensor, "prompt pos"], grid: Grid) -> None:
    """Refuse a model that shows an attention pattern but computes on without it.

    A hook that returns another pattern changes nothing in some TransformerBridges; every effect would read zero.

    Raises:
        InputError: The model does not listen to the hook point.
    """
    layer, tokens = grid.layers[0], tokens[:1]

    def shifted(activation: Tensor, hook: Any) -> Tensor:
        return activation + torch.rand_like(activation)

    with torch.random.fork_rng(devices=[]):
        if torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(grid.hook(layer), shifted)]), model(tokens)):
            raise InputError(
                f"the model takes no notice of what a hook returns at {grid.hook(layer)}; patch another kind of "
                "activation, or the same weights as a HookedTransformer"
            )
