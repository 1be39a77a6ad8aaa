"""The metric of circuits on pairs of prompts.

Whatever circuits have in common is computed once for models that the engine represents, whose heads share nothing and
whose blocks are not parallel. All others run cell by cell through hooks (`edge_states`). The numbers are the same.

A part's output in a circuit depends on the circuit's edges that lead to it, directly or through others. Circuits that
agree in these edges share the output. In one layer with two heads and an MLP, the 8192 circuits need 8 outputs of each
head, 128 of the MLP, and 1936 different logits. After the last attention only the positions that are read are followed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import LOGITS, THROUGH, Edge, Site, reading_depth
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.block import Attention
from mnemoscope.engine.budget import n_prompts_at_once
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.edge_states import (
    CHUNK_BYTES,
    EdgeReplacement,
    UnchangedRun,
    record_writers,
    replacement_outputs,
    sweep_states,
)
from mnemoscope.interventions.feature_parts import part_output, refuse_features
from mnemoscope.interventions.graph import EdgeState, writers
from mnemoscope.interventions.measurement import CellMetrics, Chunk, PatchedLogits, Plan, SweepQuestion, measure_sweep


@torch.no_grad()
def run_circuits(
    question: SweepQuestion,
    edges: Sequence[Edge],
    masks: Bool[np.ndarray, "circuit edge"],
    replacement: EdgeReplacement,
) -> Float[np.ndarray, "circuit prompt"]:
    """The metric of circuits on every prompt; `edges` are all of the model, those outside carry the `replacement`."""
    weights = resumable_transformer(question.model, question.n_pos, everywhere=True)
    if not isinstance(weights, str) and all(not b.parallel and b.attention.n_sharing == 1 for b in weights.blocks):
        return _shared(question, weights, edges, masks, replacement)
    why = weights if isinstance(weights, str) else "its blocks are parallel, or its heads share keys and values"
    refuse_features(question.model, why)
    states = torch.from_numpy(np.where(masks, int(EdgeState.LIVE), int(EdgeState.PATCHED)))
    return to_numpy(sweep_states(question, edges, states, replacement=replacement).value[0, 0])


def _shared(
    question: SweepQuestion,
    weights: Transformer,
    edges: Sequence[Edge],
    masks: Bool[np.ndarray, "circuit edge"],
    replacement: EdgeReplacement,
) -> Float[np.ndarray, "circuit prompt"]:
    model, n_pos, (found, variant) = question.model, question.n_pos, shared_parts(edges, masks)
    read, sites = question.read.to(weights.w_u.device), {edge.writer for edge in edges}
    need = _count_floats(weights, found, n_pos, len(read)) * weights.w_u.element_size()
    if need > question.max_bytes // 2 and len(masks) > 1:
        halves = np.split(masks, [len(masks) // 2])
        return np.concatenate([_shared(question, weights, edges, half, replacement) for half in halves])
    kept = 4 * len(sites) * n_pos * weights.w_u.nbytes // weights.w_u.shape[1]
    n = len(question.pairs)
    n_prompts = n_prompts_at_once(
        n, working_bytes=need, kept_bytes=kept, max_bytes=question.max_bytes, target=CHUNK_BYTES
    )
    others = replacement_outputs(question, replacement, n_prompts)

    def answers(chunk: Chunk[UnchangedRun]) -> Iterator[CellMetrics]:
        here = _outputs_by_site(model, chunk.base.outputs, sites).items()
        embedded = {site: value for site, value in here if reading_depth(site) < 0}
        logits = _logits(weights, found, embedded, _outputs_by_site(model, others(chunk), sites), read)
        return chunk.measure_patched([PatchedLogits(cells=range(len(logits)), first=0, logits=logits)])

    run = partial(record_writers, model, read=read, wanted=frozenset())
    plan = Plan(method="stream", n_prompts=n_prompts, run=run, measure_chunk=answers)
    return to_numpy(measure_sweep(question, len(found[-1].reads), plan).value[0, 0])[variant]


def _outputs_by_site(
    model: HookedModel, outputs: Float[Tensor, "writer prompt pos d_model"], sites: set[Site]
) -> dict[Site, Float[Tensor, "prompt pos d_model"]]:
    """The output of every writer of a graph; all embeddings together if the graph has them so."""
    found = dict(zip(writers(model, embeddings="apart"), outputs, strict=True))
    together = torch.stack([value for site, value in found.items() if reading_depth(site) < 0]).sum(0)
    return {site: together if site.kind == "resid_pre" else found[site] for site in sites}


@dataclass(frozen=True, kw_only=True)
class InputVariants:
    """One input of a part: for each variant that of each writer's output; 0: the writer is not live."""

    writers: tuple[Site, ...]
    live: Int[np.ndarray, "variant writer"]


@dataclass(frozen=True, kw_only=True)
class PartVariants:
    """A reader with its inputs in all their variants; `reads` gives these for each variant of the reader's output."""

    reader: Site | Literal["logits"]
    inputs: tuple[InputVariants, ...]
    reads: Int[np.ndarray, "variant input"]


def shared_parts(
    edges: Sequence[Edge], masks: Bool[np.ndarray, "circuit edge"]
) -> tuple[list[PartVariants], Int[np.ndarray, " circuit"]]:
    """The parts of a model in the order in which they read, and the variant of the logits in every circuit."""
    found: list[PartVariants] = []
    of_circuit: dict[Site | str, np.ndarray] = {edge.writer: np.ones(len(masks), dtype=np.int64) for edge in edges}
    for _, of_reader in groupby(range(len(edges)), key=lambda number: edges[number].reader):
        members, inputs, reads = list(of_reader), [], []
        reader = edges[members[0]].reader
        for _, of_input in groupby(members, key=lambda number: edges[number].through):
            numbers = list(of_input)
            writers = tuple(edges[number].writer for number in numbers)
            live = masks[:, numbers] * np.stack([of_circuit[writer] for writer in writers], 1)
            distinct, which = np.unique(live, axis=0, return_inverse=True)
            inputs.append(InputVariants(writers=writers, live=distinct))
            reads.append(which.ravel())
        distinct, which = np.unique(np.stack(reads, 1), axis=0, return_inverse=True)
        of_circuit[reader] = which.ravel() + 1
        found.append(PartVariants(reader=reader, inputs=tuple(inputs), reads=distinct))
    return found, of_circuit[LOGITS] - 1


def _count_floats(model: Transformer, found: Sequence[PartVariants], n_pos: int, n_read: int) -> int:
    """Estimate how many numbers `_logits` holds at a time for one prompt."""
    (d_model, d_vocab), block = model.w_u.shape, model.blocks[0]
    d_head, d_mlp = block.attention.d_head, 0 if block.mlp is None else block.mlp.w_in.shape[1]
    d_mlp += max((dictionary.n_features for dictionary in model.dictionaries), default=0)
    *parts, end = found
    kept = sum(len(part.reads) for part in parts) * n_pos * d_model
    inputs = max(sum(len(one.live) for one in part.inputs) for part in parts) * n_pos * 3 * d_model
    outputs = max(len(part.reads) for part in parts) * n_pos * max(4 * d_head + 2 * n_pos, 2 * d_mlp)
    return kept + max(inputs + outputs, len(end.reads) * n_read * (3 * d_model + 8 * d_vocab + 40))


@torch.no_grad()
def _logits(
    model: Transformer,
    found: Sequence[PartVariants],
    written: dict[Site, Float[Tensor, "prompt pos d_model"]],
    other: dict[Site, Float[Tensor, "#prompt pos d_model"]],
    read: Int[Tensor, " read"],
) -> Float[Tensor, "variant prompt read d_vocab"]:
    """The logits of every variant at the positions `read`.

    `written` is the output of the embeddings on the clean prompts, `other` that of every writer outside a circuit.
    """
    changes = {site: _prepend_zeros((value - other[site])[None]) for site, value in written.items()}
    last, cut = len(model.blocks) - 1, False
    for part in found:
        at = part.reader if isinstance(part.reader, Site) else None
        number = last if at is None else int(at.layer or 0)
        block = model.blocks[number]
        if not cut and number == last and (at is None or at.kind != "z"):
            changes, other = ({site: of[site][..., read, :] for site in of} for of in (changes, other))
            cut = True
        biases = [before.attention.b_o for before in model.blocks[: number + (at is None or at.kind != "z")]]
        streams = [_stream(one, changes, other, biases) for one in part.inputs]
        if at is None:
            return model.unembed(streams[0])
        if at.kind == "z":
            reads = torch.from_numpy(part.reads).to(streams[0].device)
            value = _head_output_variants(
                block.attention, int(at.head or 0), [block.ln1(each) for each in streams], reads
            )
        else:
            value = _mlp_part_output(model, at, streams[0])
        changes[at] = _prepend_zeros(value - other[at])
    raise AssertionError("the last part is the logits")


def _prepend_zeros(changes: Float[Tensor, "variant prompt pos d_model"]) -> Float[Tensor, "more prompt pos d_model"]:
    """Put first a variant 0, in which the writer is not live."""
    return torch.cat((torch.zeros_like(changes[:1]), changes))


def _stream(
    one: InputVariants,
    changes: dict[Site, Float[Tensor, "_ prompt pos d_model"]],
    other: dict[Site, Float[Tensor, "#prompt pos d_model"]],
    biases: Sequence[Float[Tensor, " d_model"]],
) -> Float[Tensor, "variant prompt pos d_model"]:
    """The stream that a part reads, in every variant."""
    total = torch.stack([other[writer] for writer in one.writers]).sum(0) + sum(biases)
    for writer, live in zip(one.writers, one.live.T, strict=True):
        total = total + changes[writer][torch.from_numpy(live).to(total.device)]
    return total


def _head_output_variants(
    attn: Attention,
    head: int,
    normed: Sequence[Float[Tensor, "_ prompt pos d_model"]],
    reads: Int[Tensor, "variant 3"],
) -> Float[Tensor, "variant prompt pos d_model"]:
    """The output of a head in every variant of its queries, keys and values."""
    at, places = slice(head * attn.d_head, (head + 1) * attn.d_head), slice(normed[0].shape[-2])
    q, k, v = (
        F.linear(stream, *(part[at] for part in attn.input_projection(kind)))
        for kind, stream in zip(THROUGH, normed, strict=True)
    )
    variants = zip((attn.rotate(q, places), attn.rotate(k, places), v), reads.T, strict=True)
    q, k, v = (x[which][:, :, None] for x, which in variants)
    return attn.attend(q, k, v, torch.arange(q.shape[-2], device=q.device))[:, :, 0] @ attn.w_o[head]


def _mlp_part_output(
    model: Transformer, part: Site, stream: Float[Tensor, "*rows d_model"]
) -> Float[Tensor, "*rows d_model"]:
    """The output of an MLP, of a feature of its dictionary, or of all that features leave out."""
    block = model.blocks[int(part.layer or 0)]
    if part.kind != "mlp_out":
        return part_output(block, model.dictionary(part.layer), part, stream)
    assert block.mlp is not None
    return block.mlp(block.ln2(stream))


def mixed_logits(
    weights: Transformer,
    edges: Sequence[Edge],
    embedded: Mapping[Site, Float[Tensor, "row pos d_model"]],
    other: Mapping[Site, Float[Tensor, "#row #pos d_model"]],
    shares: Float[Tensor, "row edge"],
    read: Int[Tensor, " read"],
) -> Float[Tensor, "row read d_vocab"]:
    """Logits where every edge carries a share of what its writer writes in this run, and of another value for the rest.

    `edges` are all of the model, `embedded` the output of its embeddings; differentiable in `shares` and `other`.
    """
    embeddings, zero = list(embedded), torch.zeros(1, 3, dtype=torch.long, device=shares.device)
    order = [*embeddings, *(part for part in dict.fromkeys(edge.reader for edge in edges) if isinstance(part, Site))]
    changes = [embedded[site] - other[site] for site in embeddings]
    rest = torch.stack([other[site].expand(len(shares), *changes[0].shape[1:]) for site in order]).cumsum(0)
    stacked = torch.stack(changes)
    for reader, of_reader in groupby(range(len(edges)), key=lambda number: edges[number].reader):
        at = reader if isinstance(reader, Site) else None
        layer = len(weights.blocks) - 1 if at is None else int(at.layer or 0)
        biases = [block.attention.b_o for block in weights.blocks[: layer + (at is None or at.kind != "z")]]
        streams = []
        for _, of_input in groupby(of_reader, key=lambda number: edges[number].through):
            numbers = list(of_input)  # from the first writers, in the order of writing
            n = len(numbers)
            stacked = stacked if n <= len(stacked) else torch.stack(changes)
            live = einsum(shares[:, numbers], stacked[:n], "row writer, writer row pos d_model -> row pos d_model")
            streams.append(rest[n - 1] + live + sum(biases))
        if at is None:
            return weights.unembed(streams[0][:, read])
        block = weights.blocks[layer]
        if at.kind == "z":
            normed = [block.ln1(stream)[None] for stream in streams]
            value = _head_output_variants(block.attention, int(at.head or 0), normed, zero)[0]
        else:
            value = _mlp_part_output(weights, at, streams[0])
        changes.append(value - other[at])
    raise AssertionError("the last part is the logits")
