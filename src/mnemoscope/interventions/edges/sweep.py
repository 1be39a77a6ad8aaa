"""Metrics of prompt pairs under many choices of what the edges of a model carry, in both directions.

Prompts and cells are cut into chunks that stay within a byte budget.
"""

from collections.abc import Collection, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import in_range, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.edges.graph import carried, inputs, layout, writers
from mnemoscope.interventions.edges.run import FREEZES, Freeze, check_graph, run_cells, written
from mnemoscope.interventions.patching.memory import MAX_BYTES, Sizes, prompts_at_once
from mnemoscope.interventions.patching.reading import Reader
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction, SweepResult

Replacement = Literal["patch", "mean", "zero"]
"""What patched edges carry: what the writer wrote in the other run, its mean over prompts, or nothing."""

CHUNK_BYTES = 2**25
"""Of one forward pass on a CPU: larger ones gain nothing."""


@torch.no_grad()
def sweep_states(
    model: HookedModel,
    pairs: PromptPairs,
    edges: Sequence[Edge],
    states: Int[Tensor, "cell edge"],
    *,
    metrics: Sequence[Metric],
    directions: Sequence[Direction] = DIRECTIONS,
    freeze: Collection[Freeze] = (),
    replacement: Replacement = "patch",
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> SweepResult:
    """Measure the model with every choice of states on every pair.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream.
        pairs: Both runs. Under `noising` the unchanged run is the clean one, under `denoising` the corrupted one.
        edges: Those that states speak of; all others are live.
        states: Of every edge in every cell (`State`).
        metrics: Read at the scored positions; the value of a prompt is the mean over them.
        directions: Which.
        freeze: `attention` keeps the patterns of the unchanged run, `layer_norm` the scales of its normalisations.
        replacement: What patched edges carry: `patch`, the output of the writer in the other run; `mean`, its mean
            over the prompts of that run, position by position; `zero`, nothing.
        max_bytes: Bound on what is allocated on the way, weights and result excepted.
        seed: The check of the metrics draws from this seed's stream `metrics`.

    Raises:
        InputError: The model has no such graph or edge, a metric measures no prediction, or the budget is too small.
    """
    check_graph(model)
    for direction in directions:
        one_of("a direction", direction, DIRECTIONS)
    for part in freeze:
        one_of("freeze", part, FREEZES)
    one_of("replacement", replacement, get_args(Replacement))
    in_range("the number of cells", len(states), 1, float("inf"))
    at = layout(model, edges)
    read = pairs.scored.any(0).nonzero()[:, 0]
    n_prompts, at_work = _sizes(model, pairs, len(read), max_bytes)
    chunks = [slice(start, start + n_prompts) for start in range(0, len(pairs), n_prompts)]
    whole = (pairs.clean, pairs.corrupted)
    means = [mean_outputs(model, side, chunks) for side in whole] if replacement == "mean" else None
    value = torch.zeros(len(directions), len(metrics), len(states), len(pairs), dtype=torch.double)
    unpatched = torch.zeros(2, len(metrics), len(pairs), dtype=torch.double)
    for rows in chunks:
        part = pairs.select(rows)
        sides = (part.clean, part.corrupted)
        runs = [written(model, side.inputs, read, frozenset(freeze)) for side in sides]
        reader = Reader.of(part, read, metrics, runs[0].logits)
        reader.check(generator(seed, "metrics"))
        everywhere = [reader.values(run.logits[None])[:, 0] for run in runs]
        for side, values in enumerate(everywhere):
            unpatched[side, :, rows] = reader.mean(values)
        n_cells = max(1, min(max_bytes, CHUNK_BYTES) // (len(sides[0]) * at_work))
        for number, direction in enumerate(directions):
            into, out_of = (0, 1) if direction == "noising" else (1, 0)
            other = runs[out_of].outputs if means is None else means[out_of].expand_as(runs[out_of].outputs)
            other = torch.zeros_like(other) if replacement == "zero" else other
            for cells in torch.arange(len(states)).split(n_cells):
                told = carried(at, sides[into], states[cells])
                logits = run_cells(model, sides[into].inputs, runs[into], other, told, read, freeze=freeze)
                value[number, :, cells, rows] = reader.patched(logits, 0, everywhere[into])
    return SweepResult(value=value, clean=unpatched[0], corrupted=unpatched[1], method="hooks")


@torch.no_grad()
def mean_outputs(
    model: HookedModel, batch: Batch, chunks: Sequence[slice | Tensor]
) -> Float[Tensor, "1 pos writer d_model"]:
    """What every part writes in the mean over some prompts, position by position; run in chunks of rows."""
    nowhere = torch.empty(0, dtype=torch.long)
    runs = (written(model, batch.inputs[rows], nowhere, frozenset()).outputs for rows in chunks)
    return torch.stack([outputs.sum(0, keepdim=True) for outputs in runs]).sum(0) / len(batch)


def _sizes(model: HookedModel, pairs: PromptPairs, n_read: int, max_bytes: int) -> tuple[int, int]:
    """Prompts of a chunk, and bytes of one prompt in one cell."""
    cfg, n_pos = model.cfg, pairs.clean.inputs.shape[1]
    sizes = Sizes(cfg=cfg, n_pos=n_pos, n_read=n_read)
    n_writers = len(writers(model, embeddings="apart"))
    at_once = 3 * len(inputs(model)) // cfg.n_layers + n_writers
    at_work = sizes.hooked() + sizes.float_bytes * n_pos * cfg.d_model * at_once
    kept = sizes.float_bytes * n_pos * cfg.d_model * (3 * n_writers + 4 * cfg.n_layers)
    kept += 2 * sizes.float_bytes * n_pos * cfg.n_layers * cfg.n_heads * n_pos
    n = prompts_at_once(len(pairs), at_work=at_work, kept=kept, room=max_bytes, target=CHUNK_BYTES)
    return n, at_work
