"""First-order estimates of what patching an edge does, for every edge of a model at once.

The estimate of one edge is

    Σ over positions of (written in the other run - written in this run) · gradient at the reader's input,

with the gradient averaged over points between the two runs.
"""

from collections.abc import Mapping, Sequence

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.edges.gradients import (
    check_gradient,
    input_gradients,
    prompts_traced,
    sums,
    traced,
    traced_names,
)
from mnemoscope.interventions.edges.graph import Input, inputs, layout, writers
from mnemoscope.interventions.edges.run import Written, check_graph, written
from mnemoscope.interventions.patching.reading import Reader
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction, SweepResult
from mnemoscope.interventions.recordings import recorded
from mnemoscope.interventions.regions import positions

Point = Mapping[str, float]
"""By hook point, the share of the clean run in the activation with which a run goes on from there. `START` is always
among them; the rest of the run follows."""
START = "blocks.0.hook_resid_pre"

_Terms = Mapping[Input, tuple[Tensor, Tensor]]
"""By input of a reader: numbers of edges that lead there, and the number of a writer for each."""


def attributed(
    model: HookedModel,
    pairs: PromptPairs,
    edges: Sequence[Edge],
    paths: Mapping[Direction, Sequence[Point]],
    *,
    metrics: Sequence[Metric],
    max_bytes: int,
    seed: int = 0,
) -> SweepResult:
    """Estimate the value of every metric with each edge patched.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream; hooks that are on it stay and act.
        pairs: Both runs. Under `noising` edges take from the corrupted run, under `denoising` from the clean one.
        edges: Which.
        paths: By direction the points over which gradients are averaged.
        metrics: Read at the scored positions; the value of a prompt is the mean over them.
        max_bytes: Bound on what is allocated on the way, weights and result excepted.
        seed: The check of the metrics draws from this seed's stream `metrics`.

    Raises:
        InputError: The model has no such graph or edge, a metric measures no prediction or has no gradient, or the
            budget is too small.
    """
    check_graph(model)
    for direction in paths:
        one_of("a direction", direction, DIRECTIONS)
    value = torch.zeros(len(paths), len(metrics), len(edges), len(pairs), dtype=torch.double)
    unpatched = torch.zeros(2, len(metrics), len(pairs), dtype=torch.double)
    terms = _terms(model, edges)
    n_writers, d_model = len(writers(model, embeddings="apart")), model.cfg.d_model
    kept = 4 * n_writers * d_model + 2 * len(edges) * len(metrics)
    readers = 8 * d_model + 3 * model.cfg.n_heads * model.cfg.d_head + 2 * n_writers
    n_prompts = prompts_traced(model, pairs, max_bytes, n_runs=1, kept=kept, readers=readers)
    for start in range(0, len(pairs), n_prompts):
        rows = slice(start, start + n_prompts)
        _attribute(
            model, pairs.select(rows), edges, terms, paths, metrics, seed, value[..., rows], unpatched[..., rows]
        )
    return SweepResult(value=value, clean=unpatched[0], corrupted=unpatched[1], method="gradients")


def _attribute(
    model: HookedModel,
    pairs: PromptPairs,
    edges: Sequence[Edge],
    terms: _Terms,
    paths: Mapping[Direction, Sequence[Point]],
    metrics: Sequence[Metric],
    seed: int,
    value: Float[Tensor, "direction metric edge prompt"],
    unpatched: Float[Tensor, "side metric prompt"],
) -> None:
    """Fill in the estimates of some prompts, and their values without a patch."""
    read = pairs.scored.any(0).nonzero()[:, 0]
    runs = [written(model, side.inputs, read, frozenset()) for side in (pairs.clean, pairs.corrupted)]
    reader = Reader.of(pairs, read, metrics, runs[0].logits)
    reader.check(generator(seed, "metrics"))
    for side, run in enumerate(runs):
        unpatched[side] = reader.mean(reader.values(run.logits[None])[:, 0])
    averaged, path = torch.empty(0), None
    for number, (direction, points) in enumerate(paths.items()):
        if points != path:
            averaged, path = _averaged(model, pairs, runs, reader, terms, points, len(edges)), points
        side, sign = (0, -1) if direction == "noising" else (1, 1)
        batch = (pairs.clean, pairs.corrupted)[side]
        value[number] = unpatched[side][:, None] + sign * _at_positions(averaged, edges, batch).double().cpu()


def _averaged(
    model: HookedModel,
    pairs: PromptPairs,
    runs: Sequence[Written],
    reader: Reader,
    terms: _Terms,
    points: Sequence[Point],
    n_edges: int,
) -> Float[Tensor, "metric edge prompt pos"]:
    """What the clean run writes beyond the corrupted one, times the gradient averaged over points."""
    differs = runs[0].outputs - runs[1].outputs
    clean, corrupted = _ends(model, pairs, runs, points)
    total = differs.new_zeros(len(reader.metrics), n_edges, *pairs.clean.inputs.shape)
    for point in points:
        starts = {name: torch.lerp(corrupted[name], clean[name], share) for name, share in point.items()}
        _add(total, model, pairs, starts, reader, terms, differs)
    for metric, of_metric in zip(reader.metrics, total, strict=True):
        check_gradient(of_metric, metric.name)
    return total / len(points)


def _add(
    total: Float[Tensor, "metric edge prompt pos"],
    model: HookedModel,
    pairs: PromptPairs,
    starts: Mapping[str, Tensor],
    reader: Reader,
    terms: _Terms,
    differs: Float[Tensor, "prompt pos writer d_model"],
) -> None:
    """Add the terms of one run, whose trace is forgotten afterwards."""
    read = pairs.scored.any(0).nonzero()[:, 0]
    run = traced(model, pairs.clean.inputs, traced_names(model), read, starts=starts)
    for of_metric, summed in zip(total, sums(reader, run), strict=True):
        for places, gradient in input_gradients(model, run, summed, terms):
            moved = einsum(differs, gradient, "prompt pos writer d, input prompt pos d -> input writer prompt pos")
            for place, of_input in zip(places, moved, strict=True):
                edge, writer = terms[place]
                of_metric.index_add_(0, edge.to(of_input.device), of_input[writer])


def _ends(
    model: HookedModel, pairs: PromptPairs, runs: Sequence[Written], points: Sequence[Point]
) -> list[dict[str, Tensor]]:
    """The activations of the clean and the corrupted run between which points lie."""
    names = {name for point in points for name in point}
    found = []
    for run, batch in zip(runs, (pairs.clean, pairs.corrupted), strict=True):
        missing = names - run.kept.keys()
        found.append({**run.kept, **(recorded(model, batch, missing) if missing else {})})
    return found


def _terms(model: HookedModel, edges: Sequence[Edge]) -> _Terms:
    """What each edge is a sum of; an edge from all embeddings, or into all inputs of a head, of several terms."""
    number, row, column = torch.cat(list(layout(model, edges).groups), 1)
    return {place: (number[row == i], column[row == i]) for i, place in enumerate(inputs(model)) if (row == i).any()}


def _at_positions(
    moved: Float[Tensor, "metric edge prompt pos"], edges: Sequence[Edge], batch: Batch
) -> Float[Tensor, "metric edge prompt"]:
    """Sums over the positions that edges name."""
    total = moved.sum(-1)
    for number, edge in enumerate(edges):
        if edge.pos is not None:
            total[:, number] = (moved[:, number] * positions(edge.pos, batch).to(moved.device)).sum(-1)
    return total
