"""What all edges carry while one edge, or one path of edges, is patched."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.edge import Edge
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import edges, reads, single
from mnemoscope.interventions.edges.states import State

Effect = Literal["total", "direct"]
Between = Literal["nothing", "mlps"]
Cell = Mapping[Edge, State]
"""Edges that carry something else than the rest."""


def of_edge(model: HookedModel, edge: Edge, *, effect: Effect, between: Between) -> Cell:
    """The cell in which an edge is patched, as `patching.patch_edges` explains."""
    cell = {edge: State.PATCHED}
    if between == "mlps":
        cell |= _through_mlps(model, edge)
    if effect == "direct" and isinstance(edge.reader, Site):
        cell[Edge(writer=edge.reader)] = State.LIVE
    return cell


def of_path(path: Sequence[Edge]) -> Cell:
    """The cell in which the first edge of a path is patched and the others pass the change on."""
    first, *later = path
    return {**dict.fromkeys(later, State.LIVE), first: State.PATCHED}


def states(model: HookedModel, cells: Sequence[Cell], rest: State) -> tuple[list[Edge], Int[Tensor, "cell edge"]]:
    """All edges of a model, those of the cells last, and what they carry in each cell; others are as `rest` says."""
    every = edges(model, embeddings="apart")
    own = list(dict.fromkeys(edge for cell in cells for edge in cell))
    number = {edge: len(every) + i for i, edge in enumerate(own)}
    told = torch.full((len(cells), len(every) + len(own)), int(State.UNSAID))
    told[:, : len(every)] = int(rest)
    for row, cell in enumerate(cells):
        for edge, state in cell.items():
            told[row, number[edge]] = int(state)
    return [*every, *own], told


def _through_mlps(model: HookedModel, edge: Edge) -> dict[Edge, State]:
    """MLPs between writer and reader see the patch too, and tell each other and the reader, but nobody else."""
    all_mlps = () if model.cfg.attn_only else range(model.cfg.n_layers)
    mlps = [Site(kind="mlp_out", layer=layer) for layer in all_mlps]
    between = {mlp for mlp in mlps if reads(model, mlp, edge.writer) and reads(model, edge.reader, mlp)}
    told = {(part.reader, part.through) for part in single(model, edge)}
    cell = {Edge(writer=edge.writer, reader=mlp, pos=edge.pos): State.PATCHED for mlp in between}
    for part in edges(model):
        if part.writer in between:
            passes = part.reader in between or (part.reader, part.through) in told
            cell[part.at(edge.pos)] = State.LIVE if passes else State.FROZEN
    return cell
