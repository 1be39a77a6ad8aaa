"""The edges of a model: who writes to the residual stream, who reads from it, and what each edge carries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.edge import SHARED, THROUGH, Edge, Through
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import EMBEDDINGS, Site
from mnemoscope.interventions.regions import n_kv_heads, positions

Embeddings = Literal["together", "apart"]
Input = tuple[Site | Literal["logits"], Through | None]
"""A reader, and by which of its inputs it reads."""


_REFUSED = {
    "positional_embedding_type": ("shortformer",),
    "use_normalization_before_and_after": (True,),
    "original_architecture": ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
}


def check_graph(model: HookedModel) -> None:
    """Refuse a model whose parts do not simply add up in the residual stream.

    Raises:
        InputError: Naming what is not supported.
    """
    cfg, who = model.cfg, "edges of this model cannot be told apart"
    for name, refused in _REFUSED.items():
        if getattr(cfg, name, None) in refused:
            raise InputError(f"{who}, because {name} is {getattr(cfg, name)}; patch activations with analyses.patching")
    if "blocks.0.attn.W_Q" not in dict(model.named_parameters()):
        raise InputError(f"{who}, because it does not keep weights as a HookedTransformer does; load it as one")


def writers(model: HookedModel, *, embeddings: Embeddings = "together") -> list[Site]:
    """Everything that writes to the residual stream, in the order in which it does.

    Args:
        model: Any hooked model.
        embeddings: `apart` keeps the token and the positional embedding, where one is added, as two writers.
    """
    one_of("embeddings", embeddings, get_args(Embeddings))
    cfg = model.cfg
    found = [Site(kind="resid_pre", layer=0)] if embeddings == "together" else _embeddings(model)
    for layer in range(cfg.n_layers):
        found += [Site(kind="z", layer=layer, head=head) for head in range(cfg.n_heads)]
        found += [] if cfg.attn_only else [Site(kind="mlp_out", layer=layer)]
    return found


def _embeddings(model: HookedModel) -> list[Site]:
    added = model.cfg.positional_embedding_type == "standard"
    return [Site(kind=kind) for kind in (EMBEDDINGS if added else EMBEDDINGS[:1])]


def n_sharing(model: HookedModel) -> int:
    """Number of heads that share their keys and values with one another."""
    return model.cfg.n_heads // n_kv_heads(model)


def parts_of(model: HookedModel, reader: Site | Literal["logits"]) -> list[Site | Literal["logits"]]:
    """The parts whose output depends on what a reader reads: itself, or the heads that share a key/value head."""
    if not isinstance(reader, Site) or reader.kind not in SHARED:
        return [reader]
    assert reader.head is not None
    n = n_sharing(model)
    return [replace(reader, kind="z", head=head) for head in range(n * reader.head, n * (reader.head + 1))]


def inputs(model: HookedModel) -> list[Input]:
    """Everything that reads from the residual stream, in the order of reading: a head through each of q, k and v, and
    where heads share these keys and values, a key/value head through each of them before the heads.
    """
    cfg, n = model.cfg, n_sharing(model)
    ways = THROUGH if n == 1 else THROUGH[:1]
    found: list[Input] = []
    for layer in range(cfg.n_layers):
        heads = [Site(kind="z", layer=layer, head=head) for head in range(cfg.n_heads)]
        if n > 1:
            groups = range(cfg.n_heads // n)
            found.extend((Site(kind=way, layer=layer, head=group), way) for group in groups for way in THROUGH[1:])
        found.extend((head, way) for head in heads for way in ways)
        if not cfg.attn_only:
            found.append((Site(kind="mlp_out", layer=layer), None))
    found.append(("logits", None))
    return found


def model_edges(model: HookedModel, *, embeddings: Embeddings = "together") -> tuple[Edge, ...]:
    """Every edge of a model, in the order of the readers, then of the writers.

    Args:
        model: Any hooked model.
        embeddings: Whether token and positional embedding are one writer, as in EAP-IG and auto-circuit, or two.
    """
    sources = writers(model, embeddings=embeddings)
    return tuple(
        Edge(writer=site, reader=reader, through=through)
        for reader, through in inputs(model)
        for site in sources
        if reads(model, reader, site)
    )


def reads(model: HookedModel, reader: Site | Literal["logits"], writer: Site) -> bool:
    """Whether what a part writes is in the input of another one."""
    if not isinstance(reader, Site) or writer.layer is None or writer.kind == "resid_pre":
        return True
    assert reader.layer is not None
    within = writer.kind == "z" and reader.kind == "mlp_out" and not model.cfg.parallel_attn_mlp
    return writer.layer < reader.layer or (writer.layer == reader.layer and within)


def single(model: HookedModel, edge: Edge) -> list[Edge]:
    """The edges that one stands for: of each embedding by itself, and through each of q, k and v."""
    from_ = _embeddings(model) if edge.writer.kind == "resid_pre" else [edge.writer]
    is_head = isinstance(edge.reader, Site) and edge.reader.kind == "z"
    ways = THROUGH if is_head and edge.through is None else (edge.through,)
    if from_ == [edge.writer] and ways == (edge.through,):
        return [edge]
    return [replace(edge, writer=site, through=way) for way in ways for site in from_]


def _those_it_has(model: HookedModel) -> str:
    if n_sharing(model) > 1:
        return "its heads share keys and values, which key/value heads read (a reader of kind k or v), and read q alone"
    return "interventions.edges.graph.model_edges(model) gives those it has"


class State(IntEnum):
    """What an edge carries."""

    UNSET = -1
    """As an earlier edge of a list that overlaps with it has it; live if none does."""
    FROZEN = 0
    """What the writer writes in the unchanged run."""
    LIVE = 1
    """What it writes in the changed run."""
    PATCHED = 2
    """What it wrote in the other run, or another value put in the place of that."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """States of all edges of a model, laid out by input and writer.

    Attributes:
        live: Edges that carry what the changed run writes.
        patched: Edges that carry what the other run wrote.
        changed: Inputs that are not live throughout.

    The axes `row` and `pos` have length 1 where the states are the same for all prompts, or at all positions.
    """

    live: Bool[Tensor, "cell row pos input writer"]
    patched: Bool[Tensor, "cell row pos input writer"]
    changed: Bool[Tensor, " input"]

    @property
    def uniform(self) -> bool:
        """Whether the states are the same at all positions of all prompts."""
        return self.live.shape[1:3] == (1, 1)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where edges lie among the inputs and writers of a model.

    Attributes:
        edges: The edges that have states of their own.
        exists: All edges of the model.
        groups: Number, input and writer of edges that do not overlap, in the order of the edges. An edge may stand
            for several entries. One that has positions is a group by itself.
    """

    edges: Sequence[Edge]
    exists: Bool[Tensor, "input writer"]
    groups: Sequence[Int[Tensor, "3 _"]]


def layout(model: HookedModel, edges: Sequence[Edge]) -> Layout:
    """Find some edges in a model.

    Raises:
        InputError: The model has no such edge.
    """
    sources, readers = writers(model, embeddings="apart"), inputs(model)
    exists = [[reads(model, reader, site) for site in sources] for reader, _ in readers]
    columns = {site: i for i, site in enumerate(sources)}
    rows = {place: i for i, place in enumerate(readers)}
    groups: list[list[tuple[int, int, int]]] = []
    taken: set[tuple[int, int]] | None = None
    for number, edge in enumerate(edges):
        parts = single(model, edge)
        places = [(rows.get((part.reader, part.through), -1), columns.get(part.writer, -1)) for part in parts]
        if not all(row >= 0 and column >= 0 and exists[row][column] for row, column in places):
            raise InputError(f"the model has no edge {edge}; {_those_it_has(model)}")
        if taken is None or edge.pos is not None or not taken.isdisjoint(places):
            groups.append([])
            taken = set()
        groups[-1] += [(number, *place) for place in places]
        taken.update(places)
        taken = taken if edge.pos is None else None
    return Layout(edges=edges, exists=torch.tensor(exists), groups=[torch.tensor(group).T for group in groups])


def carried(at: Layout, batch: Batch, states: Int[Tensor, "cell edge"]) -> Carried:
    """Lay out the states of some edges; all others are live, and those with positions live at other positions.

    Args:
        at: Where the edges lie.
        batch: Its latents say where positions are that edges name after one.
        states: Of every edge in every cell (`State`). Of edges that overlap the later one prevails.

    Raises:
        InputError: An edge names no position of the batch.
    """
    device, n_pos = batch.inputs.device, batch.inputs.shape[1]
    states = states.to(device)
    varied = any(edge.pos is not None for edge in at.edges)
    shape = (len(states), *((len(batch), n_pos) if varied else (1, 1)), *at.exists.shape)
    exists = at.exists.to(device)
    live = exists.expand(shape).clone()
    patched = torch.zeros_like(live)
    for group in at.groups:
        number, row, column = group.to(device)
        edge, state = at.edges[int(number[0])], states[:, None, None, number]
        given = state != State.UNSET
        if edge.pos is not None:
            given = given & positions(edge.pos, batch)[:, :, None]
        live[..., row, column] = torch.where(given, state == State.LIVE, live[..., row, column])
        patched[..., row, column] = torch.where(given, state == State.PATCHED, patched[..., row, column])
    changed = (patched | (live != exists)).flatten(0, 2).any(0).any(-1)
    return Carried(live=live, patched=patched, changed=changed)
