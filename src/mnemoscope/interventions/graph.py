"""The parts of a model and its edges: who writes to the residual stream, who reads it, and what each edge carries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.dictionary_places import layer_dictionary, n_neurons
from mnemoscope.core.errors import InputError, check_memory, in_range, one_of
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import (
    EMBEDDINGS,
    MLP,
    MLP_PARTS,
    OF_DICTIONARY,
    SHARED,
    THROUGH,
    Edge,
    Site,
    Through,
)
from mnemoscope.interventions.feature_parts import (
    check_feature_parts,
    check_listable,
    mlp_parts,
    part_outputs,
    written_hooks,
)
from mnemoscope.interventions.replacements import as_tuple, position_mask

Embeddings = Literal["together", "apart"]
Input = tuple[Site | Literal["logits"], Through | None]
"""A reader, and by which of its inputs it reads."""


_REFUSED = {
    "positional_embedding_type": ("shortformer",),
    "use_normalization_before_and_after": (True,),
    "original_architecture": ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
}


def n_kv_heads(model: HookedModel) -> int:
    """Number of heads of a layer that have their own keys and values; the others share these, in groups."""
    cfg = model.cfg
    apart = getattr(cfg, "ungroup_grouped_query_attention", False)
    return cfg.n_heads if apart else getattr(cfg, "n_key_value_heads", None) or cfg.n_heads


def check_exists(model: HookedModel, site: Site) -> None:
    """Refuse a site that does not exist in the model."""
    cfg, n_heads = model.cfg, n_kv_heads(model) if site.kind in SHARED else model.cfg.n_heads
    if site.layer is not None:
        in_range(f"the layer of site {site}", site.layer, 0, cfg.n_layers - 1)
    if site.head is not None:
        in_range(f"the head of site {site}", site.head, 0, n_heads - 1)
    if site.kind in (*MLP, "resid_mid") and cfg.attn_only:
        raise InputError(f"site {site} does not exist: the model has no MLP; take a site of an attention layer")
    if site.kind in OF_DICTIONARY:
        layer_dictionary(model, site.layer)
    if site.hook not in model.hook_dict:
        raise InputError(f"site {site} does not exist: the model has no hook point {site.hook}; take another kind")
    for neuron in as_tuple(site.neuron):
        in_range(f"the neuron of site {site}", neuron, 0, n_neurons(model, site.kind, site.layer) - 1)


def check_graph(model: HookedModel) -> None:
    """Refuse a model whose parts do not simply add up in the residual stream."""
    cfg, who = model.cfg, "edges of this model cannot be told apart"
    for name, refused in _REFUSED.items():
        if getattr(cfg, name, None) in refused:
            raise InputError(f"{who}, because {name} is {getattr(cfg, name)}; patch activations with analyses.patching")
    if "blocks.0.attn.W_Q" not in dict(model.named_parameters()):
        raise InputError(f"{who}, because it does not keep weights as a HookedTransformer does; load it as one")
    check_feature_parts(model)


def writers(model: HookedModel, *, embeddings: Embeddings = "together") -> list[Site]:
    """Everything that writes to the residual stream, in the order of writing; embeddings as one writer, or `apart`."""
    one_of("embeddings", embeddings, get_args(Embeddings))
    cfg = model.cfg
    found = [Site(kind="resid_pre", layer=0)] if embeddings == "together" else _embeddings(model)
    for layer in range(cfg.n_layers):
        found += [Site(kind="z", layer=layer, head=head) for head in range(cfg.n_heads)]
        found += mlp_parts(model, layer)
    return found


def _embeddings(model: HookedModel) -> list[Site]:
    added = model.cfg.positional_embedding_type == "standard"
    return [Site(kind=kind) for kind in (EMBEDDINGS if added else EMBEDDINGS[:1])]


def n_sharing(model: HookedModel) -> int:
    """Number of heads that share their keys and values with one another."""
    return model.cfg.n_heads // n_kv_heads(model)


def parts_of_reader(model: HookedModel, reader: Site | Literal["logits"]) -> list[Site | Literal["logits"]]:
    """The parts whose output depends on what a reader reads: itself, or the heads that share a key/value head."""
    if not isinstance(reader, Site) or reader.kind not in SHARED:
        return [reader]
    assert reader.head is not None
    n = n_sharing(model)
    return [replace(reader, kind="z", head=head) for head in range(n * reader.head, n * (reader.head + 1))]


def reader_inputs(model: HookedModel) -> list[Input]:
    """Everything that reads from the residual stream, in the order of reading.

    Where heads share keys and values, a key/value head reads through k and v before the heads, which read through q.
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
        found.extend((part, None) for part in mlp_parts(model, layer))
    found.append(("logits", None))
    return found


def model_edges(model: ModelLike, *, embeddings: Embeddings = "together") -> tuple[Edge, ...]:
    """Every edge of a model, in the order of the readers, then of the writers.

    With embeddings `together` token and positional embedding are one writer, as in EAP-IG and auto-circuit; `apart`
    they are two. Where a dictionary reconstructs the output of an MLP, its features and all that they leave out
    (`error`) take the place of the MLP. Raises InputError where other dictionaries are in the model, or the graph is
    too large to be listed.
    """
    model = resolve_model(model)
    check_feature_parts(model)
    check_listable(model)
    sources = writers(model, embeddings=embeddings)
    return tuple(
        Edge(writer=site, reader=reader, through=through)
        for reader, through in reader_inputs(model)
        for site in sources
        if reads_from(model, reader, site)
    )


def chosen_edges(
    model: HookedModel, chosen: Sequence[Edge] | None, *, embeddings: Embeddings = "together"
) -> Sequence[Edge]:
    """The chosen edges, or every edge of the model; InputError where none is chosen, or one twice."""
    check_graph(model)
    if chosen is None:
        return model_edges(model, embeddings=embeddings)
    if not chosen or len(set(map(str, chosen))) < len(chosen):
        raise InputError(f"chosen must name at least one edge, each once; got {len(chosen)}")
    return chosen


def reads_from(model: HookedModel, reader: Site | Literal["logits"], writer: Site) -> bool:
    """True if the output of `writer` is part of the input of `reader`."""
    if not isinstance(reader, Site) or writer.layer is None or writer.kind == "resid_pre":
        return True
    assert reader.layer is not None
    within = writer.kind == "z" and reader.kind in MLP_PARTS and not model.cfg.parallel_attn_mlp
    return writer.layer < reader.layer or (writer.layer == reader.layer and within)


def split_edge(model: HookedModel, edge: Edge) -> list[Edge]:
    """The edges that one stands for: one from each embedding, and one through each of q, k and v."""
    from_ = _embeddings(model) if edge.writer.kind == "resid_pre" else [edge.writer]
    is_head = isinstance(edge.reader, Site) and edge.reader.kind == "z"
    ways = THROUGH if is_head and edge.through is None else (edge.through,)
    if from_ == [edge.writer] and ways == (edge.through,):
        return [edge]
    return [replace(edge, writer=site, through=way) for way in ways for site in from_]


def stream_name(model: HookedModel, reader: Site | Literal["logits"], through: Through | None) -> str:
    """The hook point of the residual stream that a part reads."""
    if not isinstance(reader, Site):
        return f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    end = "mid" if through is None and reader.kind in MLP_PARTS and not model.cfg.parallel_attn_mlp else "pre"
    return f"blocks.{reader.layer}.hook_resid_{end}"


def writer_names(model: HookedModel) -> set[str]:
    """The hook points that `outputs` needs."""
    return {name for site in writers(model, embeddings="apart") for name in written_hooks(site)}


def writer_outputs(model: HookedModel, found: Mapping[str, Tensor]) -> Float[Tensor, "writer prompt pos d_model"]:
    """The contribution of each writer to the residual stream, from activations by hook point."""
    parts = []
    for site in writers(model, embeddings="apart"):
        if site.kind == "error":
            parts.append(part_outputs(model, int(site.layer or 0), found))
        elif site.kind != "feature":  # those come with the error of their layer
            parts.append((head_output(model, site, found[site.hook]) if site.kind == "z" else found[site.hook])[None])
    return torch.cat(parts)


def head_output(model: HookedModel, site: Site, z: Float[Tensor, "*rows head_index d_head"]) -> Tensor:
    """The output of one head to the residual stream."""
    assert site.layer is not None
    return z[..., site.head, :] @ model.blocks[site.layer].attn.W_O[site.head]


def _describe_size(model: HookedModel) -> str:
    if n_sharing(model) > 1:
        return "its heads share keys and values, which key/value heads read (a reader of kind k or v), and read q alone"
    return "interventions.graph.model_edges(model) gives those it has"


class EdgeState(IntEnum):
    """The value that an edge carries."""

    UNSET = -1
    """As an earlier edge of a list that overlaps with it has it; live if none does."""
    FROZEN = 0
    """The writer's output in the unchanged run."""
    LIVE = 1
    """Its output in the changed run."""
    PATCHED = 2
    """Its output in the other run, or another value put in its place."""


@dataclass(frozen=True, kw_only=True)
class EdgeLayout:
    """The places of edges among the inputs and writers of a model, embeddings apart.

    `streams` are the hook points of the streams that inputs read; `exists` marks all edges of the model. `groups` hold
    number, input and writer of edges that do not overlap; one that has positions is a group by itself.
    """

    edges: Sequence[Edge]
    writers: Sequence[Site]
    inputs: Sequence[Input]
    streams: Sequence[str]
    exists: Bool[Tensor, "input writer"]
    groups: Sequence[Int[Tensor, "3 _"]]


@dataclass(frozen=True, kw_only=True)
class StateMasks:
    """States of all edges of a model, laid out by input and writer.

    `live` edges carry what the changed run writes, `patched` ones what the other run wrote; `changed` inputs are not
    live throughout. The axes `row` and `pos` have length 1 where states are the same along them.
    """

    at: EdgeLayout
    live: Bool[Tensor, "cell row pos input writer"]
    patched: Bool[Tensor, "cell row pos input writer"]
    changed: Bool[Tensor, " input"]

    @property
    def uniform(self) -> bool:
        """True if the states are the same at all positions of all prompts."""
        return self.live.shape[1:3] == (1, 1)


def lay_out_edges(model: HookedModel, edges: Sequence[Edge]) -> EdgeLayout:
    """Find some edges in a model, or raise InputError."""
    check_graph(model)
    check_listable(model)
    sources, readers = writers(model, embeddings="apart"), reader_inputs(model)
    exists = [[reads_from(model, reader, site) for site in sources] for reader, _ in readers]
    columns = {site: i for i, site in enumerate(sources)}
    rows = {place: i for i, place in enumerate(readers)}
    groups: list[list[tuple[int, int, int]]] = []
    taken: set[tuple[int, int]] | None = None
    for number, edge in enumerate(edges):
        parts = split_edge(model, edge)
        places = [(rows.get((part.reader, part.through), -1), columns.get(part.writer, -1)) for part in parts]
        if not all(row >= 0 and column >= 0 and exists[row][column] for row, column in places):
            raise InputError(f"the model has no edge {edge}; {_describe_size(model)}")
        if taken is None or edge.pos is not None or not taken.isdisjoint(places):
            groups.append([])
            taken = set()
        groups[-1] += [(number, *place) for place in places]
        taken.update(places)
        taken = taken if edge.pos is None else None
    return EdgeLayout(
        edges=edges,
        writers=sources,
        inputs=readers,
        streams=[stream_name(model, *place) for place in readers],
        exists=torch.tensor(exists),
        groups=[torch.tensor(group).T for group in groups],
    )


def lay_out_states(at: EdgeLayout, batch: Batch, states: Int[Tensor, "cell edge"]) -> StateMasks:
    """Lay out the states of some edges in every cell; others are live; where edges overlap the later prevails."""
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
        given = state != EdgeState.UNSET
        if edge.pos is not None:
            given = given & position_mask(edge.pos, batch)[:, :, None]
        live[..., row, column] = torch.where(given, state == EdgeState.LIVE, live[..., row, column])
        patched[..., row, column] = torch.where(given, state == EdgeState.PATCHED, patched[..., row, column])
    changed = (patched | (live != exists)).flatten(0, 2).any(0).any(-1)
    return StateMasks(at=at, live=live, patched=patched, changed=changed)


EdgeStates = Mapping[Edge, EdgeState]
"""Edges that carry something else than the rest."""


def edge_patch_states(
    model: HookedModel, edge: Edge, *, direct: bool = False, through_mlps: bool = False
) -> EdgeStates:
    """The states in which an edge is patched.

    Its reader's output then goes everywhere, or with `direct` to the logits alone. With `through_mlps` the MLPs between
    writer and reader see the patch too, and pass it on to the reader alone.
    """
    cell = {edge: EdgeState.PATCHED}
    if through_mlps:
        cell |= _mlp_states(model, edge)
    if direct:
        for part in parts_of_reader(model, edge.reader):
            if isinstance(part, Site):
                cell[Edge(writer=part)] = EdgeState.LIVE
    return cell


def _mlp_states(model: HookedModel, edge: Edge) -> dict[Edge, EdgeState]:
    """States in which the MLPs between writer and reader see the patch, and write to each other and the reader only."""
    all_mlps = () if model.cfg.attn_only else range(model.cfg.n_layers)
    mlps = [Site(kind="mlp_out", layer=layer) for layer in all_mlps]
    between = {mlp for mlp in mlps if reads_from(model, mlp, edge.writer) and reads_from(model, edge.reader, mlp)}
    last = {(part.reader, part.through) for part in split_edge(model, edge)}
    cell = {Edge(writer=edge.writer, reader=mlp, pos=edge.pos): EdgeState.PATCHED for mlp in between}
    for part in model_edges(model):
        if part.writer in between:
            passes = part.reader in between or (part.reader, part.through) in last
            cell[part.at(edge.pos)] = EdgeState.LIVE if passes else EdgeState.FROZEN
    return cell


def tabulate_states(
    model: HookedModel, cells: Sequence[EdgeStates], rest: EdgeState, max_bytes: int
) -> tuple[list[Edge], Int[Tensor, "cell edge"]]:
    """All edges of a model, then those of the cells, and their states in each; all others have the state `rest`."""
    every = model_edges(model, embeddings="apart")
    own = list(dict.fromkeys(edge for cell in cells for edge in cell))
    number = {edge: len(every) + i for i, edge in enumerate(own)}
    needed, way_out = 8 * len(cells) * (len(every) + len(own)), "choose fewer edges, or estimate them (attribute_edges)"
    check_memory(f"the table of what {len(every)} edges carry in {len(cells)} cells", needed, max_bytes, way_out)
    carried = torch.full((len(cells), len(every) + len(own)), int(EdgeState.UNSET))
    carried[:, : len(every)] = int(rest)
    for row, cell in enumerate(cells):
        for edge, state in cell.items():
            carried[row, number[edge]] = int(state)
    return [*every, *own], carried
