"""Edges patched one at a time by continuing from the changed residual stream: the fast way.

Only the reader's input changes, by what the writer wrote in the other run less what it wrote in this one. Heads of one
layer normalise the same stream, so each change of it is normalised once. A head through q, k or v attends anew with
that one changed; what its z has changed by, W_O carries to the stream. All heads that share keys and values attend anew
where these change. An MLP acts anew; at the logits the change itself arrives. What the reader then writes changes the
stream at one point, and all that follows is continued as in activation patching; for the direct effect it is added to
the stream after the last block instead. Edges that carry the same in both runs, or whose change no position that is
read can see, are not run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.edge import LOGITS, SHARED, THROUGH, Edge, Through
from mnemoscope.core.layers import attended, projected
from mnemoscope.core.site import EMBEDDINGS, Kind, Position, Site
from mnemoscope.interventions.edges.graph import layout
from mnemoscope.interventions.patching.measuring import Chunk, Patched, Plan, Question
from mnemoscope.interventions.patching.memory import Sizes
from mnemoscope.interventions.patching.packed import Layer, Packed, continued, ended, prolonged
from mnemoscope.interventions.patching.sweep import best_bytes, recorded_plan, reproduced
from mnemoscope.interventions.patching.through_stream import Stream, entry, stream
from mnemoscope.interventions.recordings import Place, Run
from mnemoscope.interventions.regions import positions

Positions = Mapping[Position | None, Bool[Tensor, "rows pos"]]
"""Where the positions are that edges name: for each prompt, or one row for all."""
Carried = tuple[Site, Position | None]
"""A writer, and where what it wrote counts."""
Reader = tuple[int, Kind]
"""Readers of one layer: heads (`z`), key/value heads (`k`, `v`) or the MLP (`mlp_out`); the logits are `resid_post` of
the last.
"""

T = TypeVar("T")


@torch.no_grad()
def plan_edges(question: Question, edges: Sequence[Edge], *, direct: bool = False) -> Plan[Run] | str:
    """How to patch edges one at a time the fast way; or, in words, why that is not open.

    Args:
        question: What is measured.
        edges: Of the model; their numbers are the cells.
        direct: Whether only the logits read what the reader of an edge then writes.

    Raises:
        InputError: The model has no such edge, or the budget is too small.
    """
    layout(question.model, edges)
    weights, reason = reproduced(question, plain=False)
    if weights is None:
        return reason
    sizes = Sizes.of(question)
    named = {edge.pos for edge in edges if edge.pos is not None}

    def patched(chunk: Chunk[Run], room: int) -> Iterator[Patched]:
        at_once = min(room, best_bytes(question)) // len(chunk.batch)
        return by_stream(
            stream(weights, chunk.base, question.read),
            chunk.source,
            edges,
            n_cells=lambda start: max(1, at_once // sizes.edge(start)),
            positions={pos: positions(pos, chunk.batch) for pos in named},
            direct=direct,
        )

    wanted, at_work = places(weights), sizes.edge(0)
    return recorded_plan(question, wanted, patched, method="stream", copied=weights.copied_bytes, at_work=at_work)


def places(weights: Packed) -> set[Place]:
    """What has to be recorded of both runs."""
    kinds: tuple[Kind, ...] = ("resid_pre", "q", "k", "v", "z", "resid_post")
    if weights.has_mlp:
        kinds = (*kinds, "mlp_out")
    if weights.has_middle:
        kinds = (*kinds, "resid_mid")
    embeddings = EMBEDDINGS if weights.layers[0].rotary is None else EMBEDDINGS[:1]
    return {*((kind, None) for kind in embeddings), *((kind, n) for kind in kinds for n in range(len(weights.layers)))}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Changed inputs of the readers of one layer.

    Attributes:
        run: The run that is changed.
        layer: Number of the block.
        start: The first position that changes.
        seen: Positions, none earlier, at which it matters what the readers write.
        change: What several writers add to the stream, from `start` on.
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
        mlp, change = self._block.mlp, self._seen(self.change[list(rows)])
        assert mlp is not None
        if self._block.parallel:
            rest = self._stream("resid_post") - self._stream("mlp_out")
            return mlp(self._stream("resid_pre") + change) + rest
        stream = self._stream("resid_mid")
        return mlp(stream + change) + stream

    def after_heads(
        self,
        changes: Float[Tensor, "writer prompt reader seen d_reader"],
        rows: Sequence[int],
        readers: Sequence[int | None],
    ) -> Float[Tensor, "edge prompt seen d_model"]:
        """The stream after attention where one reader each, to which one writer each wrote, has changed its z."""
        stream = self._stream(entry(self.run.weights, "z", self.layer)[1][0])
        each = stream.flatten(0, 1).expand(len(rows), -1, -1)
        z = changes[list(rows), :, list(readers)].flatten(1, 2)
        w_o = self._block.w_o.reshape(changes.shape[2], -1, stream.shape[-1])
        return torch.baddbmm(each, z, w_o[list(readers)]).unflatten(1, stream.shape[:2])

    def z_changes(self, through: Through | None) -> Float[Tensor, "writer prompt reader seen d_reader"]:
        """The change of every reader's z when what writers change is read through one input, or (None) through all.

        A head reads its z; of what key/value heads read, the heads that share it lie side by side.
        """
        block, past = self._block, self.run.past
        q, z = (self._stream(kind).transpose(1, 2)[None] for kind in ("q", "z"))
        q, k, v = q / block.scale, past.keys[self.layer][None], past.values[self.layer][None]
        if through in ("q", None):
            q = self._projected(self._seen(self._normed), "q")
        if through in ("k", None):
            own = block.turned(self._projected(self._normed, "k"), slice(self.start, k.shape[-2]))
            k = prolonged(k[0], own)
        if through in ("v", None):
            v = prolonged(v[0], self._projected(self._normed, "v"))
        q = block.turned(q, self.seen).unflatten(2, (block.n_kv, -1))
        changed = attended(q @ k[:, :, :, None].mT, v[:, :, :, None], self.seen).flatten(2, 3) - z
        n = 1 if through in ("q", None) else block.n_sharing
        return rearrange(changed, "writer prompt (kv n) seen d_head -> writer prompt kv seen (n d_head)", n=n)

    def _projected(
        self, normed: Float[Tensor, "writer prompt some d_model"], through: Through
    ) -> Float[Tensor, "writer prompt some_heads some d_head"]:
        rows = projected(normed, *self._block.into(through))
        split = "writer prompt some (head d_head) -> writer prompt head some d_head"
        return rearrange(rows, split, d_head=self._block.w_o.shape[1])

    @property
    def _block(self) -> Layer:
        return self.run.weights.layers[self.layer]

    @cached_property
    def _normed(self) -> Float[Tensor, "writer prompt suffix d_model"]:
        changed = self.run.base["resid_pre", self.layer][:, self.start :] + self.change
        return self._block.ln1(changed)

    def _stream(self, kind: Kind) -> Float[Tensor, "prompt seen *width"]:
        return self.run.base[kind, self.layer].index_select(1, self.seen)

    def _seen(self, suffix: Float[Tensor, "some prompt suffix d_model"]) -> Float[Tensor, "some prompt seen d_model"]:
        return suffix.index_select(2, self.seen - self.start)


@torch.no_grad()
def by_stream(
    run: Stream,
    source: Run,
    edges: Sequence[Edge],
    *,
    n_cells: Callable[[int], int],
    positions: Positions | None = None,
    direct: bool = False,
) -> Iterator[Patched]:
    """Every edge that changes anything, each by itself, on all prompts of a run.

    Args:
        run: What is patched, recorded at `places`.
        source: The run that the edges carry from, recorded there too.
        edges: Of the model; their numbers are the cells.
        n_cells: How many edges that change something from a position on are run at once.
        positions: Where the positions are that edges name.
        direct: Whether only the logits read what the reader then writes.
    """
    n_pos, positions = run.base["resid_pre", 0].shape[1], positions or {}
    gathered = _gathered(run, source, edges, positions, direct)
    for (start, reader), own in sorted(gathered.items()):
        read = run.read[run.read >= start]
        last_only = direct or _is_last(run, reader)
        seen = read if last_only else torch.arange(start, n_pos, device=read.device)
        size = n_cells(n_pos - len(seen))
        for some in _split(list(own), n_cells(start)):
            change = torch.stack([_change(run, source, carried, positions)[:, start:] for carried in some])
            inputs = Inputs(run=run, layer=reader[0], start=start, seen=seen, change=change)
            cells = [(number, row) for row, carried in enumerate(some) for number in own[carried]]
            for numbers, residual in _entered(inputs, reader[1], edges, cells, size):
                logits = _read(run, residual, reader, read, direct)
                yield Patched(cells=numbers, first=len(run.read) - len(read), logits=logits)


def _is_last(run: Stream, reader: Reader) -> bool:
    return reader[0] == len(run.weights.layers) - 1


def _gathered(
    run: Stream, source: Run, edges: Sequence[Edge], positions: Positions, direct: bool
) -> dict[tuple[int, Reader], dict[Carried, list[int]]]:
    """Numbers of the edges to run, by the first position that they change, their reader and what they carry."""
    gathered: dict[tuple[int, Reader], dict[Carried, list[int]]] = {}
    differing: dict[Carried, Int[Tensor, " some"]] = {}
    for number, edge in enumerate(edges):
        carried = edge.writer, edge.pos
        if carried not in differing:
            differing[carried] = _differing(run, source, carried, positions)
        where, reader = differing[carried], _reader(run, edge)
        by_position = reader[1] in ("mlp_out", "resid_post") or edge.through == "q"
        if by_position and (direct or _is_last(run, reader)):
            where = where[torch.isin(where, run.read)]
        if len(where) and where[0] <= run.read[-1]:
            gathered.setdefault((int(where[0]), reader), {}).setdefault(carried, []).append(number)
    return gathered


def _reader(run: Stream, edge: Edge) -> Reader:
    if edge.reader == LOGITS:
        return len(run.weights.layers) - 1, "resid_post"
    assert isinstance(edge.reader, Site)
    assert edge.reader.layer is not None
    return edge.reader.layer, edge.reader.kind


def _entered(
    inputs: Inputs, kind: Kind, edges: Sequence[Edge], cells: Sequence[tuple[int, int]], size: int
) -> Iterator[tuple[list[int], Float[Tensor, "edge prompt seen d_model"]]]:
    """Numbers of edges, and the stream after their reader. A cell is an edge's number and the row of its writer."""
    if kind not in ("z", *SHARED):
        for some in _split(cells, size):
            numbers, rows = zip(*some, strict=True)
            yield list(numbers), inputs.after_mlp(rows) if kind == "mlp_out" else inputs.at_logits(rows)
        return
    for through in (*THROUGH, None):
        own = [(number, row) for number, row in cells if edges[number].through == through]
        if own:
            changes = inputs.z_changes(through)
            for some in _split(own, size):
                numbers, rows = zip(*some, strict=True)
                readers = [reader.head for number in numbers if isinstance(reader := edges[number].reader, Site)]
                yield list(numbers), inputs.after_heads(changes, rows, readers)


def _read(
    run: Stream, residual: Float[Tensor, "edge prompt seen d_model"], reader: Reader, read: Tensor, direct: bool
) -> Float[Tensor, "edge prompt read d_vocab"]:
    """Logits of edges whose reader has changed the stream."""
    layer, kind = reader
    point, place = entry(run.weights, kind, layer)
    end = 2 * len(run.weights.layers)
    if direct:
        residual += (run.base["resid_post", end // 2 - 1] - run.base[place])[:, read]
        return ended(run.weights, residual, 0)
    if _is_last(run, reader):
        return ended(run.weights, residual, len(residual) if point < end else 0)
    return continued(run.weights, residual, [0] * point + [len(residual)] * (end + 1 - point), run.past, read)


def _change(run: Stream, source: Run, carried: Carried, positions: Positions) -> Float[Tensor, "prompt pos d_model"]:
    """What a writer wrote in the other run less what it wrote in this one, where that counts."""
    (site, pos), (new, old) = carried, _outputs(run, source, carried[0])
    change = new - old
    if site.kind == "z" and site.layer is not None:
        change = change @ run.weights.layers[site.layer].w_o[site.head]
    return change if pos is None else change * positions[pos][..., None]


def _differing(run: Stream, source: Run, carried: Carried, positions: Positions) -> Int[Tensor, " some"]:
    """At which positions the two runs differ in any prompt; equal prefixes give equal numbers, bit for bit."""
    pos, (new, old) = carried[1], _outputs(run, source, carried[0])
    differ = (new != old).any(-1)
    return (differ if pos is None else differ & positions[pos]).any(0).nonzero()[:, 0]


def _outputs(run: Stream, source: Run, site: Site) -> tuple[Tensor, ...]:
    both = source[site.kind, site.layer], run.base[site.kind, site.layer]
    return tuple(each[:, :, site.head] for each in both) if site.kind == "z" else both


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))
