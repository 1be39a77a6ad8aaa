"""Metrics of prompt pairs under many choices of what the edges of a model carry, in both directions.

Prompts and cells are cut into chunks that stay within a byte budget.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.engine.budget import prompts_at_once, worth_a_pass
from mnemoscope.interventions.edges.graph import carried, check_graph, inputs, layout, writers
from mnemoscope.interventions.edges.run import FREEZES, Cells, Freeze, Written, written
from mnemoscope.interventions.patching.measuring import Answer, Chunk, Patched, Plan, Question, SweepResult, measured

Replacement = Literal["patch", "mean", "zero"]
"""What patched edges carry: what the writer wrote in the other run, its mean over prompts, or nothing."""

CHUNK_BYTES = 2**25
"""Of one forward pass on a CPU: larger ones gain nothing, unless the weights are larger."""


def sweep_states(
    question: Question,
    edges: Sequence[Edge],
    states: Int[Tensor, "cell edge"],
    *,
    freeze: Collection[Freeze] = (),
    replacement: Replacement = "patch",
) -> SweepResult:
    """Measure the model with every choice of states on every pair.

    Args:
        question: What is measured. The parts of its model must add up in the residual stream.
        edges: Those that have a state of their own; all others are live.
        states: Of every edge in every cell (`State`).
        freeze: `attention` keeps the patterns of the unchanged run, `layer_norm` the scales of its normalisations.
        replacement: What patched edges carry: `patch`, the output of the writer in the other run; `mean`, its mean
            over the prompts of that run, position by position; `zero`, nothing.

    Raises:
        InputError: The model has no such graph or edge, a metric measures no prediction, or the budget is too small.
    """
    model, read = question.model, question.read
    check_graph(model)
    for part in freeze:
        one_of("freeze", part, FREEZES)
    in_range("the number of cells", len(states), 1, float("inf"))
    at = layout(model, edges)
    n_prompts, at_work = _sizes(question)
    others = outside(question, replacement, n_prompts)

    def answers(chunk: Chunk[Written]) -> Iterator[Answer]:
        n_cells = max(1, min(question.max_bytes, worth_a_pass(model, CHUNK_BYTES)) // (len(chunk.batch) * at_work))
        other = others(chunk).expand_as(chunk.source.outputs)
        for cells in torch.arange(len(states)).split(n_cells):
            asked = carried(at, chunk.batch, states[cells])
            logits = Cells(model, chunk.base, other, asked).logits(chunk.batch.inputs, read)
            yield from chunk.answers([Patched(cells=cells.tolist(), first=0, logits=logits)])

    run = partial(written, model, read=read, wanted=frozenset(freeze))
    plan = Plan(method="hooks", n_prompts=n_prompts, run=run, answers=answers)
    return measured(question, len(states), plan)


def outside(
    question: Question, replacement: Replacement, n_prompts: int
) -> Callable[[Chunk[Written]], Float[Tensor, "writer #prompt pos d_model"]]:
    """What patched edges carry of every writer, in each chunk; means are over all prompts, `n_prompts` run at a time.

    Raises:
        InputError: There is no such replacement.
    """
    one_of("replacement", replacement, get_args(Replacement))
    if replacement == "patch":
        return lambda chunk: chunk.source.outputs
    if replacement == "zero":
        return lambda chunk: torch.zeros_like(chunk.source.outputs)
    sides = (question.pairs.clean, question.pairs.corrupted)
    if any(side.ragged for side in sides):
        raise InputError("replacement 'mean' is over prompts, position by position, and these are padded; take 'patch'")
    means = [_mean_outputs(question.model, side, n_prompts) for side in sides]
    return lambda chunk: means[1 - chunk.into]


@torch.no_grad()
def _mean_outputs(model: HookedModel, batch: Batch, n_prompts: int) -> Float[Tensor, "writer 1 pos d_model"]:
    """What every part writes in the mean over some prompts, position by position."""
    nowhere = torch.empty(0, dtype=torch.long)
    runs = (written(model, tokens, nowhere, frozenset()).outputs for tokens in batch.inputs.split(n_prompts))
    return torch.stack([outputs.sum(1, keepdim=True) for outputs in runs]).sum(0) / len(batch)


def _sizes(question: Question) -> tuple[int, int]:
    """Prompts of a chunk, and bytes of one prompt in one cell."""
    model, cfg, n_pos, sizes = question.model, question.model.cfg, question.n_pos, question.sizes
    n_writers = len(writers(model, embeddings="apart"))
    at_once = 3 * len(inputs(model)) // cfg.n_layers + n_writers
    at_work = sizes.hooked(everywhere=False) + sizes.float_bytes * n_pos * cfg.d_model * at_once
    kept = sizes.float_bytes * n_pos * cfg.d_model * (3 * n_writers + 4 * cfg.n_layers)
    kept += 2 * sizes.float_bytes * n_pos * cfg.n_layers * cfg.n_heads * n_pos
    room, n, target = question.max_bytes, len(question.pairs), worth_a_pass(model, CHUNK_BYTES)
    return prompts_at_once(n, at_work=at_work, kept=kept, room=room, target=target), at_work
