"""Activation patching through the hooks of the model itself, for every model that has some.

The prompts are repeated once per cell, and each repetition is patched at its own cell, whatever layer that lies in;
hooks that are on the model act first.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.measuring import Chunk, Patched, Plan, Question, recorded_plan
from mnemoscope.interventions.reading import at_columns, unembedding
from mnemoscope.interventions.recordings import Place, Run, recorded_run, repeated
from mnemoscope.interventions.writing import check_written, writing


def hooks_plan(question: Question, grid: Grid, *, reason: str) -> Plan[Run]:
    """Plan a sweep through hooks.

    Args:
        question: What is measured.
        grid: The cells.
        reason: Why not the fast way, for the result.

    Raises:
        InputError: The model does not go on with what hooks write there, or the budget is too small.
    """
    model, sizes = question.model, question.sizes
    check_written(model, grid.kind, grid.layers)

    def patched(chunk: Chunk[Run], room: int) -> Iterator[Patched]:
        n_cells = max(1, room // (len(chunk.batch) * sizes.hooked(everywhere=False)))
        for start in range(0, len(grid.cells), n_cells):
            some = range(start, min(start + n_cells, len(grid.cells)))
            hooks = [
                (grid.hook(layer), _hook(grid, some, layer, chunk.source[grid.kind, layer]))
                for layer in {grid.of(grid.cells[number], "layer") for number in some}
            ]
            tokens = repeated(chunk.batch.inputs, len(some))
            with writing(model, hooks) as completed, unembedding(model, at_columns(question.read)) as picked:
                logits = picked(model.run_with_hooks(tokens, fwd_hooks=completed))
            yield Patched(cells=some, first=0, logits=logits.unflatten(0, (len(some), -1)))

    places: set[Place] = {(grid.kind, layer) for layer in grid.layers}
    run = partial(recorded_run, model, places=places, read=question.read)
    return recorded_plan(question, places, run, patched, method=f"hooks ({reason})")


def _hook(grid: Grid, chunk: Sequence[int], layer: int | None, source: Tensor) -> Callable[..., Tensor]:
    """A hook that patches the repetitions whose cell lies in `layer`."""

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
