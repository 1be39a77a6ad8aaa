"""Patches that are continued from the changed residual stream, the fast way: what they share, and edges one at a time.

Only the reader's input changes, by the writer's output in the other run minus its output in this one. Heads of one
layer normalise the same stream, so each change of it is normalised once. A head attends anew with the changed q, k or
v, and W_O carries the change of its z to the stream. All heads that share keys and values attend anew where these
change. An MLP acts anew, or one feature of its dictionary, or what these leave out; at the logits the change itself
arrives.

The reader's output then changes the stream at one point, and the run continues from there as in activation patching.
For the direct effect it is added to the stream after the last block instead. Edges are not run if they carry the same
in both runs, or if no position that is read can see their change.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.site import (
    EMBEDDINGS,
    MLP,
    MLP_PARTS,
    OF_DICTIONARY,
    SHARED,
    THROUGH,
    Edge,
    Kind,
    Position,
    Site,
    Through,
)
from mnemoscope.engine.block import Attention, Block, Past, join_past
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.feature_parts import encode_stream
from mnemoscope.interventions.graph import lay_out_edges
from mnemoscope.interventions.measurement import Chunk, PatchedLogits, Plan, SweepQuestion, plan_recorded_runs
from mnemoscope.interventions.recordings import Place, RecordedRun, record_engine_run
from mnemoscope.interventions.replacements import position_mask

PositionMasks = Mapping[Position, Bool[Tensor, "rows pos"]]
"""Masks of the positions that edges name: a row for each prompt, or one row for all."""
WriterAt = tuple[Site, Position | None]
"""A writer, and where what it wrote counts."""
ReaderKind = tuple[int, Kind]
"""Readers of one layer: heads (`z`), key/value heads (`k`, `v`), the MLP (`mlp_out`), or features of its dictionary and
what these leave out (`feature`, `error`); the logits are `resid_post` of the last.
"""

T = TypeVar("T")


LASTING: tuple[Kind, ...] = ("k", "v")
"""Kinds that, patched at one position, act at all later ones of the same layer."""


_BEFORE: tuple[Kind, ...] = (*EMBEDDINGS, "resid_pre")


_AFTER: tuple[Kind, ...] = (*MLP, "resid_post")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A run that is patched, with its keys and values, to be continued; `read` are the positions wanted."""

    weights: Transformer
    base: RecordedRun
    past: Sequence[Past]
    read: Int[Tensor, " read"]

    @staticmethod
    def from_run(weights: Transformer, base: RecordedRun, read: Int[Tensor, " read"]) -> "Stream":
        """Lay out the keys and values of a run."""
        past = []
        for index, block in enumerate(weights.blocks):
            k, v = (base[kind, index].transpose(1, 2).contiguous() for kind in LASTING)
            past.append(Past(k=block.attention.rotate(k, slice(k.shape[2])), v=v))
        return Stream(weights=weights, base=base, past=past, read=read.to(weights.b_u.device))


def plan_continued_runs(
    question: SweepQuestion,
    weights: Transformer,
    places: Collection[Place],
    patched: Callable[[Stream, Chunk[RecordedRun], Callable[[int], int]], Iterator[PatchedLogits]],
    size: Callable[[int], int],
) -> Plan[RecordedRun]:
    """Plan cells that are continued from the changed stream, within the budget.

    `patched` gives the logits of every cell that may matter, from the run that is patched, a chunk, and the number of
    cells to run at once by their first position. `size` gives the bytes of one cell and prompt by that position.
    """

    def within(chunk: Chunk[RecordedRun], room: int) -> Iterator[PatchedLogits]:
        at_once = min(room, question.best_bytes) // len(chunk.batch)
        run = Stream.from_run(weights, chunk.base, question.read)
        return patched(run, chunk, lambda start: max(1, at_once // size(start)))

    record, copied = partial(record_engine_run, weights, places=places, read=question.read), weights.copied_bytes
    return plan_recorded_runs(question, places, record, within, method="stream", copied=copied, working_bytes=size(0))


def entry_point(weights: Transformer, kind: Kind, layer: int | None) -> tuple[int, Place]:
    """The point (as numbered in `engine.transformer`) at which a patch changes the stream, and the stream there."""
    layer = layer or 0
    if kind in OF_DICTIONARY:
        kind = weights.dictionary(layer).writes
    if kind in _BEFORE:
        return 2 * layer, ("resid_pre", layer)
    if kind in _AFTER or not weights.has_middle:
        return 2 * layer + 2, ("resid_post", layer)
    return 2 * layer + 1, ("resid_mid", layer)


@torch.no_grad()
def plan_edges(question: SweepQuestion, edges: Sequence[Edge], *, direct: bool = False) -> Plan[RecordedRun] | str:
    """Plan to patch edges one at a time the fast way; or say, in words, why that is not open."""
    lay_out_edges(question.model, edges)
    if isinstance(weights := question.weights, str):
        return weights
    recorded = edge_places_to_record(weights)
    named = {edge.pos for edge in edges if edge.pos is not None}

    def patched(run: Stream, chunk: Chunk[RecordedRun], n_cells: Callable[[int], int]) -> Iterator[PatchedLogits]:
        where = {pos: position_mask(pos, chunk.batch) for pos in named}
        one_by_one = EdgePatching(run=run, source=chunk.source, edges=edges, positions=where, direct=direct)
        return one_by_one.patched_logits(n_cells)

    return plan_continued_runs(question, weights, recorded, patched, question.sizes.edge_bytes)


def edge_places_to_record(weights: Transformer) -> set[Place]:
    """The places to record in both runs."""
    kinds: tuple[Kind, ...] = ("resid_pre", "q", "k", "v", "z", "resid_post")
    if weights.has_mlp:
        kinds = (*kinds, "mlp_out")
    if weights.has_middle:
        kinds = (*kinds, "resid_mid")
    embeddings = EMBEDDINGS if weights.blocks[0].attention.rotary is None else EMBEDDINGS[:1]
    features: set[Place] = {("feature", dictionary.layer) for dictionary in weights.dictionaries}
    by_layer: set[Place] = {(kind, n) for kind in kinds for n in range(len(weights.blocks))}
    return {*((kind, None) for kind in embeddings), *by_layer, *features}


@dataclass(frozen=True, kw_only=True)
class ChangedInputs:
    """Changed inputs of the readers of one layer.

    `change` is the difference of several writers' outputs from `start` on. `seen` are the positions, none earlier, at
    which it matters what the readers write.
    """

    run: Stream
    layer: int
    start: int
    seen: Int[Tensor, " seen"]
    change: Float[Tensor, "writer prompt suffix d_model"]

    def at_logits(self, rows: Sequence[int]) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream that some writers change after the last block."""
        return self._stream("resid_post") + self._seen(self.change[list(rows)])

    def after_mlp(self, rows: Sequence[int]) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after the MLP whose input some writers change."""
        block, change = self._block, self._seen(self.change[list(rows)])
        assert block.mlp is not None
        if block.parallel:
            rest = self._stream("resid_post") - self._stream("mlp_out")
            return block.mlp(block.ln2(self._stream("resid_pre") + change)) + rest
        stream = self._stream("resid_mid")
        return block.mlp(block.ln2(stream + change)) + stream

    def after_features(self, rows: Sequence[int], parts: Sequence[Site]) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after the MLP where some writers change what a feature reads, or the part that features leave."""
        dictionary = self.run.weights.dictionary(self.layer)
        distinct, which = torch.tensor(rows).unique(return_inverse=True)
        stream = self._stream("resid_pre" if self._block.parallel else "resid_mid") + self._seen(self.change[distinct])
        features, whole = encode_stream(self._block, dictionary, stream)
        features = features - self._stream("feature")
        if parts[0].kind == "error":
            added = (whole - self._stream("mlp_out") - features @ dictionary.w_dec)[which]
        else:
            numbers = [part.neuron for part in parts]
            added = features.movedim(-1, 1)[which, numbers][..., None] * dictionary.w_dec[numbers][:, None, None]
        return self._stream("resid_post") + added

    def after_heads(
        self,
        changes: Float[Tensor, "writer prompt reader seen d_reader"],
        rows: Sequence[int],
        readers: Sequence[int | None],
    ) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after attention for edges from the writers in `rows`; each of `readers` has changed its z."""
        stream = self._stream(entry_point(self.run.weights, "z", self.layer)[1][0])
        each = stream.flatten(0, 1).expand(len(rows), -1, -1)
        z = changes[list(rows), :, list(readers)].flatten(1, 2)
        w_o = self._attn.w_o.reshape(changes.shape[2], -1, stream.shape[-1])
        return torch.baddbmm(each, z, w_o[list(readers)]).unflatten(1, stream.shape[:2])

    def z_changes(self, through: Through | None) -> Float[Tensor, "writer prompt reader seen d_reader"]:
        """The change of every reader's z, through one input or (None) all; heads that share lie side by side."""
        attn, past = self._attn, self.run.past[self.layer]
        q, z = (self._stream(kind).transpose(1, 2)[None] for kind in ("q", "z"))
        k, v = past.k[None], past.v[None]
        if through in ("q", None):
            q = self._projected(self._seen(self._normed), "q")
        if through in ("k", None):
            own = attn.rotate(self._projected(self._normed, "k"), slice(self.start, k.shape[-2]))
            k = join_past(past.k, own)
        if through in ("v", None):
            v = join_past(past.v, self._projected(self._normed, "v"))
        q = attn.rotate(q, self.seen)
        n_writers = len(self.change)
        q, k, v = (x.expand(n_writers, -1, -1, -1, -1) for x in (q, k, v))
        changed = attn.attend(q, k, v, self.seen) - z
        n = 1 if through in ("q", None) else attn.n_sharing
        return rearrange(changed, "writer prompt (kv n) seen d_head -> writer prompt kv seen (n d_head)", n=n)

    def _projected(
        self, normed: Float[Tensor, "writer prompt some d_model"], through: Through
    ) -> Float[Tensor, "writer prompt some_heads some d_head"]:
        return self._attn.heads(F.linear(normed, *self._attn.input_projection(through)))

    @property
    def _block(self) -> Block:
        return self.run.weights.blocks[self.layer]

    @property
    def _attn(self) -> Attention:
        return self._block.attention

    @cached_property
    def _normed(self) -> Float[Tensor, "writer prompt suffix d_model"]:
        changed = self.run.base["resid_pre", self.layer][:, self.start :] + self.change
        return self._block.ln1(changed)

    def _stream(self, kind: Kind) -> Float[Tensor, "prompt seen *width"]:
        return self.run.base[kind, self.layer].index_select(1, self.seen)

    def _seen(self, suffix: Float[Tensor, "some prompt suffix d_model"]) -> Float[Tensor, "some prompt seen d_model"]:
        return suffix.index_select(2, self.seen - self.start)


@dataclass(frozen=True, kw_only=True)
class EdgePatching:
    """Edges patched each by itself; `direct`: only the logits read what the reader then writes."""

    run: Stream
    source: RecordedRun
    edges: Sequence[Edge]
    positions: PositionMasks
    direct: bool

    @torch.no_grad()
    def patched_logits(self, n_cells: Callable[[int], int]) -> Iterator[PatchedLogits]:
        """Logits of every edge that changes anything; `n_cells` says how many of one first position run at once."""
        n_pos = self.run.base["resid_pre", 0].shape[1]
        for (start, reader), own in sorted(self._grouped().items()):
            read = self.run.read[self.run.read >= start]
            seen = read if self._has_no_readers(reader) else torch.arange(start, n_pos, device=read.device)
            size = n_cells(n_pos - len(seen))
            for some in _chunks(list(own), n_cells(start)):
                change = torch.stack([self._change(carried)[:, start:] for carried in some])
                inputs = ChangedInputs(run=self.run, layer=reader[0], start=start, seen=seen, change=change)
                cells = [(number, row) for row, carried in enumerate(some) for number in own[carried]]
                for numbers, residual in self._changed_streams(inputs, reader[1], cells, size):
                    logits = self._logits(residual, reader, read)
                    yield PatchedLogits(cells=numbers, first=len(self.run.read) - len(read), logits=logits)

    def _has_no_readers(self, reader: ReaderKind) -> bool:
        """True if no other part reads what the reader writes."""
        return self.direct or reader[0] == len(self.run.weights.blocks) - 1

    def _grouped(self) -> dict[tuple[int, ReaderKind], dict[WriterAt, list[int]]]:
        """Numbers of the edges to run, by the first position that they change, their reader and what they carry."""
        groups: dict[tuple[int, ReaderKind], dict[WriterAt, list[int]]] = {}
        carried = {(edge.writer, edge.pos) for edge in self.edges}
        differing = {each: self._differing(each) for each in carried}
        for number, edge in enumerate(self.edges):
            where, reader = differing[edge.writer, edge.pos], self._reader(edge)
            by_position = reader[1] in (*MLP_PARTS, "resid_post") or edge.through == "q"
            if by_position and self._has_no_readers(reader):
                where = where[torch.isin(where, self.run.read)]
            if len(where) and where[0] <= self.run.read[-1]:
                own = groups.setdefault((int(where[0]), reader), {})
                own.setdefault((edge.writer, edge.pos), []).append(number)
        return groups

    def _reader(self, edge: Edge) -> ReaderKind:
        if not isinstance(edge.reader, Site) or edge.reader.layer is None:
            return len(self.run.weights.blocks) - 1, "resid_post"
        return edge.reader.layer, edge.reader.kind

    def _changed_streams(
        self, inputs: ChangedInputs, kind: Kind, cells: Sequence[tuple[int, int]], size: int
    ) -> Iterator[tuple[list[int], Float[Tensor, "edge prompt seen d_model"]]]:
        """Numbers of edges, and the stream after their reader. A cell is an edge's number and the row of its writer."""
        is_head = kind in ("z", *SHARED)
        for through in (*THROUGH, None):
            own = [(number, row) for number, row in cells if self.edges[number].through == through]
            changes = inputs.z_changes(through) if own and is_head else None
            for some in _chunks(own, size):
                numbers, rows = (list(each) for each in zip(*some, strict=True))
                readers = [part for number in numbers if isinstance(part := self.edges[number].reader, Site)]
                if kind in OF_DICTIONARY:
                    yield numbers, inputs.after_features(rows, readers)
                elif changes is None:
                    yield numbers, inputs.after_mlp(rows) if kind == "mlp_out" else inputs.at_logits(rows)
                else:
                    yield numbers, inputs.after_heads(changes, rows, [reader.head for reader in readers])

    def _logits(
        self, residual: Float[Tensor, "edge prompt seen d_model"], reader: ReaderKind, read: Int[Tensor, " read"]
    ) -> Float[Tensor, "edge prompt read d_vocab"]:
        """Logits of edges whose reader has changed the stream."""
        run, (layer, kind) = self.run, reader
        point, place = entry_point(run.weights, kind, layer)
        end = 2 * len(run.weights.blocks)
        if self.direct:
            residual += (run.base["resid_post", end // 2 - 1] - run.base[place])[:, read]
            return run.weights.finish_from_stream(residual, 0)
        if self._has_no_readers(reader):
            return run.weights.finish_from_stream(residual, len(residual) if point < end else 0)
        return run.weights.resume_from_stream(
            residual, [0] * point + [len(residual)] * (end + 1 - point), run.past, read
        )

    def _change(self, carried: WriterAt) -> Float[Tensor, "prompt pos d_model"]:
        """A writer's output in the other run minus that in this one; 0 at positions that the edge leaves out."""
        (site, pos), (new, old) = carried, self._outputs(carried[0])
        change = new - old
        if site.kind == "z" and site.layer is not None:
            change = change @ self.run.weights.blocks[site.layer].attention.w_o[site.head]
        return change if pos is None else change * self.positions[pos][..., None]

    def _differing(self, carried: WriterAt) -> Int[Tensor, " some"]:
        """Positions at which the two runs differ in any prompt; equal prefixes give equal numbers, bit for bit."""
        pos, (new, old) = carried[1], self._outputs(carried[0])
        differ = (new != old).any(-1)
        return (differ if pos is None else differ & self.positions[pos]).any(0).nonzero()[:, 0]

    def _outputs(self, site: Site) -> tuple[Tensor, ...]:
        runs = self.source, self.run.base
        if site.kind not in OF_DICTIONARY:
            both = tuple(run[site.kind, site.layer] for run in runs)
            return tuple(each[:, :, site.head] for each in both) if site.kind == "z" else both
        w_dec = self.run.weights.dictionary(site.layer).w_dec
        if site.kind == "error":
            return tuple(run["mlp_out", site.layer] - run["feature", site.layer] @ w_dec for run in runs)
        return tuple(run["feature", site.layer][..., site.neuron, None] * w_dec[site.neuron] for run in runs)


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))
