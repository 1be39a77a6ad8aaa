"""Edges patched one at a time by continuing from the changed residual stream: the fast way.

Only the reader's input changes, by what the writer wrote in the other run less what it wrote in this one. What the
reader then writes changes the stream at one point, and all that follows is continued as in activation patching; for
the direct effect it is added to the stream after the last block instead. Edges that carry the same in both runs, or
whose change no position that is read can see, are not run at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.edge import LOGITS, THROUGH, Edge
from mnemoscope.core.site import Kind, Position, Site
from mnemoscope.interventions.edges.readers import Inputs
from mnemoscope.interventions.patching.changes import entry
from mnemoscope.interventions.patching.continuation import continued, ended
from mnemoscope.interventions.patching.packed import Packed
from mnemoscope.interventions.patching.runs import Patched, Place, Run
from mnemoscope.interventions.patching.through_stream import Stream

Positions = Mapping[Position | None, Bool[Tensor, "rows pos"]]
"""Where the positions are that edges name: for each prompt, or one row for all."""
Said = tuple[Site, Position | None]
"""A writer, and where what it wrote counts."""
Reader = tuple[int, Kind]
"""Readers of one layer: heads (`z`) or the MLP (`mlp_out`); the logits are `resid_post` of the last."""

T = TypeVar("T")


def places(weights: Packed) -> set[Place]:
    """What has to be recorded of both runs."""
    kinds: tuple[Kind, ...] = ("resid_pre", "q", "k", "v", "z", "resid_post")
    kinds += ("resid_mid", "mlp_out") if weights.has_mlp else ()
    return {("embed", None), ("pos_embed", None), *((kind, n) for kind in kinds for n in range(len(weights.layers)))}


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
            change = torch.stack([_change(run, source, said, positions)[:, start:] for said in some])
            inputs = Inputs(run=run, layer=reader[0], start=start, seen=seen, change=change)
            cells = [(number, row) for row, said in enumerate(some) for number in own[said]]
            for numbers, residual in _entered(inputs, reader[1], edges, cells, size):
                logits = _read(run, residual, reader, read, direct)
                yield Patched(cells=numbers, first=len(run.read) - len(read), logits=logits)


def _is_last(run: Stream, reader: Reader) -> bool:
    return reader[0] == len(run.weights.layers) - 1


def _gathered(
    run: Stream, source: Run, edges: Sequence[Edge], positions: Positions, direct: bool
) -> dict[tuple[int, Reader], dict[Said, list[int]]]:
    """Numbers of the edges to run, by the first position that they change, their reader and what they carry."""
    gathered: dict[tuple[int, Reader], dict[Said, list[int]]] = {}
    differing: dict[Said, Int[Tensor, " some"]] = {}
    for number, edge in enumerate(edges):
        said = edge.writer, edge.pos
        if said not in differing:
            differing[said] = _differing(run, source, said, positions)
        where, reader = differing[said], _reader(run, edge)
        by_position = reader[1] != "z" or edge.through == "q"
        if by_position and (direct or _is_last(run, reader)):
            where = where[torch.isin(where, run.read)]
        if len(where) and where[0] <= run.read[-1]:
            gathered.setdefault((int(where[0]), reader), {}).setdefault(said, []).append(number)
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
    if kind != "z":
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
                heads = [reader.head for number in numbers if isinstance(reader := edges[number].reader, Site)]
                yield list(numbers), inputs.after_heads(changes, rows, heads)


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


def _change(run: Stream, source: Run, said: Said, positions: Positions) -> Float[Tensor, "prompt pos d_model"]:
    """What a writer wrote in the other run less what it wrote in this one, where that counts."""
    (site, pos), (new, old) = said, _outputs(run, source, said[0])
    change = new - old
    if site.kind == "z" and site.layer is not None:
        change = change @ run.weights.layers[site.layer].w_o[site.head]
    return change if pos is None else change * positions[pos][..., None]


def _differing(run: Stream, source: Run, said: Said, positions: Positions) -> Int[Tensor, " some"]:
    """At which positions the two runs differ in any prompt; equal prefixes give equal numbers, bit for bit."""
    pos, (new, old) = said[1], _outputs(run, source, said[0])
    differ = (new != old).any(-1)
    return (differ if pos is None else differ & positions[pos]).any(0).nonzero()[:, 0]


def _outputs(run: Stream, source: Run, site: Site) -> tuple[Tensor, ...]:
    both = source[site.kind, site.layer], run.base[site.kind, site.layer]
    return tuple(each[:, :, site.head] for each in both) if site.kind == "z" else both


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))
