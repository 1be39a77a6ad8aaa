"""Activation patching of every cell of a grid, in both directions, with several metrics per forward pass.

Prompts and cells are cut into chunks that stay within a byte budget. The fast way (`through_stream`) serves plain
HookedTransformers without hooks. Every other model is patched through its hooks: the prompts are repeated once per
cell, and each repetition is patched at its own cell, whatever layer that lies in; hooks on the model act first. Both
give the same numbers.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.memory import CACHE_BYTES, Sizes, prompts_at_once
from mnemoscope.interventions.patching.packed import Packed, packed, unsupported
from mnemoscope.interventions.patching.reading import Patched, Place, Reader, Run, recorded
from mnemoscope.interventions.patching.through_stream import by_stream, places, reproduces, stream
from mnemoscope.interventions.writing import check_written, writing

Direction = Literal["noising", "denoising"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep measured, in float64 and on the CPU.

    Attributes:
        value: Under each patch.
        clean: Of the clean prompts, unpatched.
        corrupted: Of the corrupted prompts, unpatched.
        method: `stream`, or `hooks` and why.
    """

    value: Float[Tensor, "direction metric cell prompt"]
    clean: Float[Tensor, "metric prompt"]
    corrupted: Float[Tensor, "metric prompt"]
    method: str


Method = Literal["auto", "stream", "hooks"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a sweep runs, whatever its cells are.

    Attributes:
        method: In words, for results.
        places: What to record of both runs.
        read: Positions whose logits are read.
        n_prompts: Prompts of a chunk.
        patched: From some prompts, their run and the other run: their logits in every cell that may matter.
    """

    method: str
    places: Collection[Place]
    read: Int[Tensor, " read"]
    n_prompts: int
    patched: Callable[[Batch, Run, Run], Iterator[Patched]]


@torch.no_grad()
def sweep(
    model: HookedModel,
    pairs: PromptPairs,
    grid: Grid,
    *,
    metrics: Sequence[Metric],
    directions: Sequence[Direction],
    max_bytes: int,
    method: Method = "auto",
    seed: int = 0,
) -> SweepResult:
    """Patch every cell of a grid.

    Args:
        model: Any hooked model; hooks that are on it stay and act.
        pairs: Where activations come from and go to.
        grid: The cells.
        metrics: Read at the scored positions; the value of a prompt is the mean over them.
        directions: `noising` puts corrupted activations into the clean run, `denoising` clean ones into the corrupted.
        max_bytes: Of everything that is allocated on the way, the result itself excepted.
        method: `stream` or `hooks` to insist on one.
        seed: The check of the metrics draws from this seed's stream `metrics`.

    Raises:
        InputError: A metric measures no prediction, the budget is too small, the model's logits hold NaN, or the
            model cannot be patched that way.
    """
    how = plan(model, pairs, grid, max_bytes=max_bytes, method=method)
    return measured(model, pairs, how, len(grid.cells), metrics=metrics, directions=directions, seed=seed)


@torch.no_grad()
def measured(
    model: HookedModel,
    pairs: PromptPairs,
    how: Plan,
    n_cells: int,
    *,
    metrics: Sequence[Metric],
    directions: Sequence[Direction],
    seed: int,
) -> SweepResult:
    """Measure `n_cells` cells of whatever kind as planned; the other arguments and errors as for `sweep`."""
    for direction in directions:
        one_of("a direction", direction, DIRECTIONS)
    value = torch.zeros(len(directions), len(metrics), n_cells, len(pairs), dtype=torch.double)
    unpatched = torch.zeros(2, len(metrics), len(pairs), dtype=torch.double)
    for start in range(0, len(pairs), how.n_prompts):
        rows = slice(start, start + how.n_prompts)
        part = pairs.select(rows)
        _measure(model, part, metrics, directions, how, seed, value[..., rows], unpatched[..., rows])
    return SweepResult(value=value, clean=unpatched[0], corrupted=unpatched[1], method=how.method)


def _measure(
    model: HookedModel,
    pairs: PromptPairs,
    metrics: Sequence[Metric],
    directions: Sequence[Direction],
    how: Plan,
    seed: int,
    value: Float[Tensor, "direction metric cell prompt"],
    unpatched: Float[Tensor, "side metric prompt"],
) -> None:
    """Fill in the results of some prompts, those of the clean and the corrupted ones without a patch included."""
    sides = pairs.clean, pairs.corrupted
    runs = [recorded(model, side.inputs, how.places, how.read) for side in sides]
    reader = Reader.of(pairs, how.read, metrics, runs[0].logits)
    reader.check(generator(seed, "metrics"))
    everywhere = [reader.values(run.logits[None])[:, 0] for run in runs]
    for side, values in enumerate(everywhere):
        unpatched[side] = reader.mean(values)
    for number, direction in enumerate(directions):
        into, out_of = (0, 1) if direction == "noising" else (1, 0)
        value[number] = unpatched[into][:, None]
        for patched in how.patched(sides[into], runs[into], runs[out_of]):
            value[number][:, list(patched.cells)] = reader.patched(patched.logits, patched.first, everywhere[into])


@torch.no_grad()
def plan(model: HookedModel, pairs: PromptPairs, grid: Grid, *, max_bytes: int, method: Method) -> Plan:
    """Choose the fast way where the model allows it, and the size of chunks.

    Raises:
        InputError: The model cannot be patched the way that is insisted on, or the budget is too small.
    """
    one_of("method", method, get_args(Method))
    read = pairs.scored.any(0).nonzero()[:, 0]
    n_pos = pairs.clean.inputs.shape[1]
    weights, reason = (None, "asked for") if method == "hooks" else reproduced(model, pairs.clean.inputs[:1], read)
    if weights is None and method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' for this model, because {reason}; got 'stream'")
    if weights is None:
        check_written(model, grid.kind, grid.layers)
    wanted: set[Place] = places(weights, grid) if weights else {(grid.kind, layer) for layer in grid.layers}
    sizes = Sizes(cfg=model.cfg, n_pos=n_pos, n_read=len(read))
    room = max_bytes - sizes.weights() - (weights.copied_bytes if weights else 0)
    kept = sizes.recorded(wanted)
    at_work = max(sizes.hooked(), sizes.continued(0) if weights else 0)
    target = best_bytes(model, max_bytes)
    n_prompts = prompts_at_once(len(pairs), at_work=at_work, kept=kept, room=room, target=target)
    room -= n_prompts * kept

    def patched(batch: Batch, base: Run, source: Run) -> Iterator[Patched]:
        n = len(batch)
        if weights is None:
            return by_hooks(model, batch.inputs, source, grid, read, n_cells=max(1, room // (n * sizes.hooked())))
        at_once = min(room, target) // n
        run = stream(weights, base, read)
        return by_stream(run, source, grid, n_cells=lambda start: max(1, at_once // sizes.continued(start)))

    return Plan(
        method="stream" if weights else f"hooks ({reason})",
        places=wanted,
        read=read,
        n_prompts=n_prompts,
        patched=patched,
    )


def reproduced(
    model: HookedModel, tokens: Int[Tensor, "prompt pos"], read: Int[Tensor, " read"]
) -> tuple[Packed | None, str]:
    """The weights for the fast way, tried on some prompts; or None and why it is not open."""
    if reason := unsupported(model):
        return None, reason
    weights = packed(model)
    return (weights, "") if reproduces(weights, model, tokens, read) else (None, "its forward pass is a different one")


def best_bytes(model: HookedModel, max_bytes: int) -> int:
    """What a forward pass should not exceed, for speed."""
    on_cpu = next(parameter for _, parameter in model.named_parameters()).device.type == "cpu"
    return CACHE_BYTES if on_cpu else max_bytes


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
