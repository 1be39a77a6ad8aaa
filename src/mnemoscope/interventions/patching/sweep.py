"""Activation patching of every cell of a grid, in both directions, with several metrics per forward pass.

Prompts and cells are cut into chunks that stay within a byte budget. The fast way (`through_stream`) serves plain
HookedTransformers without hooks. Every other model is patched through its hooks: the prompts are repeated once per
cell, and each repetition is patched at its own cell, whatever layer that lies in; hooks on the model act first. Both
give the same numbers.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.measuring import Chunk, Patched, Plan, Question, SweepResult, measured
from mnemoscope.interventions.patching.memory import CACHE_BYTES, Sizes, prompts_at_once
from mnemoscope.interventions.patching.packed import Packed, packed, unsupported
from mnemoscope.interventions.patching.through_stream import by_stream, places, reproduces, stream
from mnemoscope.interventions.reading import at_columns, unembedding
from mnemoscope.interventions.recordings import Place, Run, recorded_run, repeated
from mnemoscope.interventions.writing import check_written, writing

Method = Literal["auto", "stream", "hooks"]


def sweep(question: Question, grid: Grid, *, method: Method = "auto") -> SweepResult:
    """Patch every cell of a grid.

    Args:
        question: What is measured.
        grid: The cells.
        method: `stream` or `hooks` to insist on one.

    Raises:
        InputError: A metric measures no prediction, the budget is too small, the model's logits hold NaN, or the
            model cannot be patched that way.
    """
    return measured(question, len(grid.cells), plan(question, grid, method))


@torch.no_grad()
def plan(question: Question, grid: Grid, method: Method) -> Plan[Run]:
    """Choose the fast way where the model allows it, and the size of chunks.

    Raises:
        InputError: The model cannot be patched the way that is insisted on, or the budget is too small.
    """
    one_of("method", method, get_args(Method))
    model = question.model
    weights, reason = (None, "asked for") if method == "hooks" else reproduced(question, plain=False)
    if weights is not None and grid.kind == "pre" and weights.is_gated:
        weights, reason = None, "in a gated MLP the effect of pre depends on what it gates"
    if weights is None and method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' for this model, because {reason}; got 'stream'")
    if weights is not None:
        return _stream_plan(question, weights, grid)
    check_written(model, grid.kind, grid.layers)
    sizes = Sizes.of(question)

    def patched(chunk: Chunk[Run], room: int) -> Iterator[Patched]:
        n_cells = max(1, room // (len(chunk.batch) * sizes.hooked(everywhere=False)))
        return by_hooks(model, chunk.batch.inputs, chunk.source, grid, question.read, n_cells=n_cells)

    places: set[Place] = {(grid.kind, layer) for layer in grid.layers}
    return recorded_plan(question, places, patched, method=f"hooks ({reason})")


def _stream_plan(question: Question, weights: Packed, grid: Grid) -> Plan[Run]:
    sizes = Sizes.of(question)

    def patched(chunk: Chunk[Run], room: int) -> Iterator[Patched]:
        at_once = min(room, best_bytes(question)) // len(chunk.batch)
        run = stream(weights, chunk.base, question.read)
        return by_stream(run, chunk.source, grid, n_cells=lambda start: max(1, at_once // sizes.continued(start)))

    wanted, at_work = places(weights, grid), sizes.continued(0)
    return recorded_plan(question, wanted, patched, method="stream", copied=weights.copied_bytes, at_work=at_work)


def recorded_plan(
    question: Question,
    places: Collection[Place],
    patched: Callable[[Chunk[Run], int], Iterator[Patched]],
    *,
    method: str,
    copied: int = 0,
    at_work: int = 0,
) -> Plan[Run]:
    """How to run cells that need both runs recorded at some places, within the budget.

    Args:
        question: What is measured.
        places: What to record.
        patched: From a chunk and the bytes that it may take, logits of every cell that may matter.
        method: For the result.
        copied: Bytes of weights that are laid out anew.
        at_work: Bytes of one cell on one prompt.

    Raises:
        InputError: The budget is too small.
    """
    sizes = Sizes.of(question)
    room, kept = question.max_bytes - sizes.weights() - copied, sizes.recorded(places)
    at_work, target = max(sizes.hooked(everywhere=False), at_work), best_bytes(question)
    n_prompts = prompts_at_once(len(question.pairs), at_work=at_work, kept=kept, room=room, target=target)
    left = room - n_prompts * kept
    return Plan(
        method=method,
        n_prompts=n_prompts,
        run=lambda tokens: recorded_run(question.model, tokens, places, question.read, directly=method == "stream"),
        answers=lambda chunk: chunk.answers(patched(chunk, left)),
    )


def reproduced(question: Question, *, plain: bool = True) -> tuple[Packed | None, str]:
    """The weights for the fast way, tried on one prompt; or None and why it is not open.

    Args:
        question: Whose model.
        plain: Whether plain models alone will do (`unsupported`).
    """
    model = question.model
    if reason := unsupported(model, plain=plain):
        return None, reason
    weights = packed(model)
    rotary = weights.layers[0].rotary
    if rotary is not None and len(rotary.cos) < question.n_pos:
        return None, "its table of rotary positions is shorter than the prompts"
    fits = reproduces(weights, model, question.pairs.clean.inputs[:1], question.read)
    return (weights, "") if fits else (None, "its forward pass is a different one")


def best_bytes(question: Question) -> int:
    """What a forward pass should not exceed, for speed."""
    on_cpu = next(parameter for _, parameter in question.model.named_parameters()).device.type == "cpu"
    return CACHE_BYTES if on_cpu else question.max_bytes


@torch.no_grad()
def by_hooks(
    model: HookedModel,
    tokens: Inputs,
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
        with writing(model, hooks) as completed, unembedding(model, at_columns(read)) as picked:
            logits = picked(model.run_with_hooks(repeated(tokens, len(chunk)), fwd_hooks=completed))
        yield Patched(cells=chunk, first=0, logits=logits.unflatten(0, (len(chunk), len(tokens))))


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
