"""The edges of a model: who writes to the residual stream, and who reads from it."""

from dataclasses import replace
from typing import Literal, get_args

from mnemoscope.core.edge import THROUGH, Edge, Through
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import EMBEDDINGS, Site

Embeddings = Literal["together", "apart"]
Input = tuple[Site | Literal["logits"], Through | None]
"""A reader, and by which of its inputs it reads."""


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


def inputs(model: HookedModel) -> list[Input]:
    """Everything that reads from the residual stream, a head through each of q, k and v, in the order of reading."""
    cfg = model.cfg
    found: list[Input] = []
    for layer in range(cfg.n_layers):
        heads = [Site(kind="z", layer=layer, head=head) for head in range(cfg.n_heads)]
        found.extend((head, way) for head in heads for way in THROUGH)
        if not cfg.attn_only:
            found.append((Site(kind="mlp_out", layer=layer), None))
    found.append(("logits", None))
    return found


def edges(model: HookedModel, *, embeddings: Embeddings = "together") -> tuple[Edge, ...]:
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
    return [replace(edge, writer=site, through=way) for way in ways for site in from_]
