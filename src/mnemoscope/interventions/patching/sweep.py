"""Activation patching of every cell of a grid, in both directions, with several metrics per forward pass.

Prompts and cells are cut into chunks that stay within a byte budget. The fast way (`through_stream`) serves plain
HookedTransformers without hooks, the slow way (`through_hooks`) every other model; both give the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.plan import Method, Plan, plan
from mnemoscope.interventions.patching.reading import Reader
from mnemoscope.interventions.patching.runs import recorded

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
