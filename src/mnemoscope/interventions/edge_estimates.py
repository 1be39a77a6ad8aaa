"""First-order estimates of patching every edge at once.

The estimate of one edge is

    Σ over positions of (written in the other run - written in this run) · gradient at the reader's input,

with the gradient averaged over points between the two runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs
from mnemoscope.core.dictionary_places import model_dictionaries
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Edge
from mnemoscope.engine.architecture import hooked_points, transformer_without_hooks
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.feature_parts import AT_ONCE, part_outputs, written_hooks
from mnemoscope.interventions.gradients import (
    check_gradient,
    input_gradients,
    metric_sums,
    n_prompts_to_trace,
    trace_run,
    traced_names,
)
from mnemoscope.interventions.graph import (
    Input,
    check_graph,
    lay_out_edges,
    reader_inputs,
    reads_from,
    split_edge,
    writer_names,
    writers,
)
from mnemoscope.interventions.measurement import CellMetrics, Chunk, Plan, SweepQuestion, SweepResult, measure_sweep
from mnemoscope.interventions.recordings import RecordedRun, check_no_nan, record_hooks
from mnemoscope.interventions.replacements import position_mask

InterpolationPoint = Mapping[str, float]
"""The share of the clean run in the activation with which a run goes on from each hook point, `START` among them."""
START = "blocks.0.hook_resid_pre"

_Terms = Mapping[Input, tuple[Tensor, Tensor]]
"""The numbers of edges that lead to each input of a reader, and the number of a writer for each."""


def estimate_edges(
    question: SweepQuestion, edges: Sequence[Edge], paths: Mapping[str, Sequence[InterpolationPoint]]
) -> SweepResult:
    """Estimate the value of every metric with each edge patched; `paths` gives the points of each direction."""
    model, d_model, heads = question.model, question.model.cfg.d_model, question.model.cfg.n_heads
    check_graph(model)
    if model_dictionaries(model) and hooked_points(model) != frozenset():
        raise InputError("edges of features need a model without hooks, which may change features; take the hooks off")
    weights = transformer_without_hooks(model, {*traced_names(model), *writer_names(model)})
    terms, n_writers = _terms(model, edges), len(writers(model, embeddings="apart"))
    distinct, by_position = list(paths.values()), any(edge.pos is not None for edge in edges)
    of_edges = 4 * len(edges) * len(question.metrics) // (1 if by_position else question.n_pos)
    kept = 2 * n_writers * d_model + 2 * model.cfg.n_layers * (d_model + heads * model.cfg.d_head) + of_edges
    readers = 6 * d_model + 3 * model.cfg.d_head + 2 * n_writers
    readers += bool(model_dictionaries(model)) * AT_ONCE * (4 * d_model + 2 * n_writers)

    def measure_chunk(chunk: Chunk[_UnpatchedRun]) -> Iterator[CellMetrics]:
        which = distinct.index(points := paths[chunk.direction])
        if which not in chunk.shared:
            chunk.shared.clear()
            total = _averaged(question, chunk, terms, points, len(edges), by_position=by_position, weights=weights)
            chunk.shared[which] = total
        clean_less_corrupted = _sum_positions(chunk.shared[which], edges, chunk.batch)
        return chunk.add_estimate((2 * chunk.into - 1) * clean_less_corrupted)

    unpatched = all(point.keys() == {START} and point[START] in (0, 1) for path in distinct for point in path)
    fitting = partial(n_prompts_to_trace, question, kept=kept, readers=readers, by_engine=weights is not None)
    n_prompts = fitting(n_runs=1)
    if unpatched:
        try:
            n_prompts = fitting(n_runs=2)
        except InputError:  # no room for the traces of both runs: gradients are taken in a third one
            unpatched = False
    plan = Plan(
        method="gradients",
        n_prompts=n_prompts,
        run=partial(_run_unpatched, model, read=question.read, weights=weights, trace=unpatched),
        measure_chunk=measure_chunk,
    )
    return measure_sweep(question, len(edges), plan)


@dataclass(frozen=True, kw_only=True)
class _UnpatchedRun:
    """An unpatched run, and its trace where gradients are taken in unpatched runs."""

    found: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]
    trace: RecordedRun | None = None


@torch.no_grad()
def _run_unpatched(
    model: HookedModel, tokens: Inputs, read: Int[Tensor, " read"], *, weights: Transformer | None, trace: bool
) -> _UnpatchedRun:
    """Run the model unpatched; `trace` keeps what gradients need."""
    names = {START, *writer_names(model)}
    if not trace:
        found, logits = record_hooks(model, tokens, names, read, by_engine=True)
        return _UnpatchedRun(found=found, logits=logits)
    run = trace_run(model, tokens, {*names, *traced_names(model)}, read, weights=weights, where_read=True)
    check_no_nan(run.logits)
    return _UnpatchedRun(found={name: run[name].detach() for name in names}, logits=run.logits.detach(), trace=run)


def _differences(question: SweepQuestion, runs: Sequence[_UnpatchedRun]) -> Float[Tensor, "writer prompt pos d_model"]:
    """The output of each writer in the clean run minus its output in the corrupted one."""
    model = question.model
    sites = {site.hook: site for site in writers(model, embeddings="apart")}
    parts = []
    for name, site in sites.items():
        moved = {each: runs[0].found[each] - runs[1].found[each] for each in written_hooks(site)}
        if site.layer is not None and site.kind == "z":  # of each head what it makes of it
            w_o = model.blocks[site.layer].attn.W_O
            parts.append(einsum(moved[name], w_o, "prompt pos head d_head, head d_head d -> head prompt pos d"))
        elif site.layer is not None and site.kind == "error":
            parts.append(_fill_positions(part_outputs(model, site.layer, moved), question))
        elif site.kind != "feature":  # those come with the error of their layer
            parts.append(_fill_positions(moved[name][None], question))
    return torch.cat(parts)


def _averaged(
    question: SweepQuestion,
    chunk: Chunk[_UnpatchedRun],
    terms: _Terms,
    points: Sequence[InterpolationPoint],
    n_edges: int,
    *,
    by_position: bool,
    weights: Transformer | None,
) -> Float[Tensor, "metric edge prompt pos"]:
    """Differences of the writers' outputs, clean minus corrupted, times the gradient averaged over points.

    Without `by_position` the result is one sum over positions, which takes one product of larger matrices.
    """
    differs = _differences(question, chunk.runs)
    differs = differs if by_position else differs.flatten(2)[:, :, None]  # a product then sums over positions
    total = differs.new_zeros(len(chunk.reader.metrics), n_edges, *differs.shape[1:3])
    for point in points:
        run = _run_at(question, chunk, point, weights)
        for of_metric, summed in zip(total, metric_sums(chunk.reader, run), strict=True):
            for places, gradient in input_gradients(question.model, run, summed, terms, weights=weights):
                gradient = _fill_positions(gradient, question)
                gradient = gradient if by_position else gradient.flatten(2)[:, :, None]
                n = 1 + max(int(terms[place][1].max()) for place in places)  # writers that one of them reads
                shape = "writer prompt pos d, input prompt pos d -> input writer prompt pos"
                moved = einsum(differs[:n], gradient, shape)
                edge = torch.cat([terms[place][0] for place in places])
                entry = torch.cat([number * n + terms[place][1] for number, place in enumerate(places)])
                of_metric.index_add_(0, edge.to(moved.device), moved.flatten(0, 1)[entry.to(moved.device)])
    for metric, of_metric in zip(chunk.reader.metrics, total, strict=True):
        check_gradient(of_metric, metric.name)
    return total / len(points)


def _run_at(
    question: SweepQuestion, chunk: Chunk[_UnpatchedRun], point: InterpolationPoint, weights: Transformer | None
) -> RecordedRun:
    """The traced run of a point: one of the unpatched ones, or one that starts between these."""
    if (trace := chunk.runs[0 if point[START] else 1].trace) is not None:
        return trace
    clean, corrupted = (run.found for run in chunk.runs)
    starts = {name: torch.lerp(corrupted[name], clean[name], share) for name, share in point.items()}
    names = traced_names(question.model)
    tokens, read = chunk.pairs.clean.inputs, question.read
    return trace_run(question.model, tokens, names, read, starts=starts, weights=weights, where_read=True)


def _fill_positions(
    x: Float[Tensor, "part prompt _ d_model"], question: SweepQuestion
) -> Float[Tensor, "part prompt pos d_model"]:
    """Fill with zeros the positions at which `x` is missing, because it is zero there or nobody reads it."""
    if x.shape[2] == question.n_pos:
        return x
    whole = x.new_zeros(*x.shape[:2], question.n_pos, x.shape[-1])
    whole[:, :, question.read.to(x.device)] = x
    return whole


def _terms(model: HookedModel, edges: Sequence[Edge]) -> _Terms:
    """The terms that each edge sums: several where it comes from all embeddings, or leads into all inputs of a head."""
    columns = {site: i for i, site in enumerate(writers(model, embeddings="apart"))}
    terms: dict[Input, tuple[list[int], list[int]]] = {place: ([], []) for place in reader_inputs(model)}
    # What edges into a reader, and those from a writer, have in common; by identity, since to hash a site takes long.
    into: dict[tuple[int, str | None], list[Input]] = {}
    origin: dict[int, list[int]] = {}
    for number, edge in enumerate(edges):
        reader, writer = (id(edge.reader), edge.through), id(edge.writer)
        if reader not in into or writer not in origin:
            parts = split_edge(model, edge)
            places: list[Input] = [(part.reader, part.through) for part in parts]
            into[reader] = [place for place in dict.fromkeys(places) if place in terms]
            origin[writer] = sorted({columns[part.writer] for part in parts if part.writer in columns})
        if not (into[reader] and origin[writer] and reads_from(model, edge.reader, edge.writer)):
            lay_out_edges(model, [edge])  # which says that there is no such edge
        for place in into[reader]:
            numbers, sources = terms[place]
            numbers += [number] * len(origin[writer])
            sources += origin[writer]
    return {place: (torch.tensor(numbers), torch.tensor(which)) for place, (numbers, which) in terms.items() if numbers}


def _sum_positions(
    moved: Float[Tensor, "metric edge prompt pos"], edges: Sequence[Edge], batch: Batch
) -> Float[Tensor, "metric edge prompt"]:
    """Sums over the positions that each edge names."""
    total = moved.sum(-1)
    for number, edge in enumerate(edges):
        if edge.pos is not None:
            total[:, number] = (moved[:, number] * position_mask(edge.pos, batch).to(moved.device)).sum(-1)
    return total
