"""Hooks that change what parts read: each reader its own input, all others the residual stream as it is.

An intervention on an edge acts this way: the reader sees another output of the writer. With any number of edges in one
forward pass, the change of a reader's input is the sum over its edges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import SHARED, Site
from mnemoscope.interventions.edges.graph import Input, Layout
from mnemoscope.interventions.recordings import results
from mnemoscope.interventions.writing import Hook

Changed = Callable[[Tensor], Tensor]
"""From all that a writer's hook point holds to the same with the writer's output changed."""
Read = Callable[[Sequence[Input], Tensor | None], Float[Tensor, "row pos reader d_model"]]
"""From inputs of one layer through the same of q, k and v, or from the only input of an MLP or the logits and the
stream there, to what is read."""


@contextmanager
def reading(model: HookedModel, wanted: Sequence[Input], read: Read) -> Iterator[tuple[list[Hook], list[Hook]]]:
    """Within the block MLPs read another input, which has no hook point; heads and logits do so through the hooks.

    `wanted` are the inputs that change, in the order of reading; `read` gives their new values. The model is a
    HookedTransformer whose parts add up in the residual stream. Yields the hooks to put on it for heads, and those for
    the logits.
    """
    groups: dict[tuple[int | None, str | None], list[Input]] = {}
    for reader, through in wanted:
        layer = reader.layer if isinstance(reader, Site) else None
        groups.setdefault((layer, through), []).append((reader, through))
    heads: list[Hook] = []
    logits: list[Hook] = []
    with ExitStack() as stack:
        for (layer, through), own in groups.items():
            if layer is None:
                name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
                logits.append((name, lambda stream, hook, own=own: read(own, stream)[:, :, 0]))
            elif through is None:
                norm, of_mlp = model.blocks[layer].ln2, lambda _, given, own=own: read(own, given[0])[:, :, 0]
                stack.callback(norm.register_forward_pre_hook(of_mlp).remove)
            else:
                hook = partial(_attend, block=model.blocks[layer], through=through, own=own, read=read)
                heads.append((f"blocks.{layer}.attn.hook_{through}", hook))
        yield heads, logits


def _attend(activation: Tensor, hook: Any, *, block: Any, through: str, own: Sequence[Input], read: Read) -> Tensor:
    """Queries, keys or values of a layer, with those of some heads computed from another input."""
    heads = [site.head for site, _ in own if isinstance(site, Site)]
    shared = any(isinstance(site, Site) and site.kind in SHARED for site, _ in own)
    names = (f"{'_' * shared}{end}_{through.upper()}" for end in "Wb")  # as heads share them, they are kept once
    weight, bias = (getattr(block.attn, name)[heads] for name in names)
    result = activation.clone()
    normed = block.ln1(read(own, None))
    projected = einsum(normed, weight, "row pos head d_model, head d_model d_head -> row pos head d_head")
    result[:, :, heads] = projected + bias
    return result


@contextmanager
def edges_changed(
    model: HookedModel, at: Layout, changes: Sequence[Changed]
) -> Iterator[tuple[list[Hook], list[Hook]]]:
    """Within the block edges carry another value, through hooks that the caller puts on the model.

    `changes` map the writer's output on each edge to its new value; those of one writer and one input act one after the
    other. The model is a HookedTransformer whose parts add up in the residual stream. Yields hooks that come before
    those of interventions at sites, and hooks that come after.
    """
    wanted = [at.inputs[row] for row in sorted({row for group in at.groups for row in group[1].tolist()})]
    written: dict[Site, Tensor] = {}
    streams: dict[int | None, Tensor] = {}

    def record(activation: Tensor, hook: Any, *, writer: Site) -> None:
        is_head = writer.kind == "z"
        written[writer] = results(model, writer.layer or 0, activation) if is_head else activation

    def keep(activation: Tensor, hook: Any, *, layer: int | None) -> None:
        streams[layer] = activation

    def added(place: Input) -> Tensor | float:
        """The change of an input."""
        now: dict[Site, Tensor] = {}
        for edge, change in zip(at.edges, changes, strict=True):
            if edge.reader == place[0] and edge.through in (None, place[1]):
                now[edge.writer] = change(now.get(edge.writer, written[edge.writer]))
        differences = ((writer, after - written[writer]) for writer, after in now.items())
        return sum((by.sum(2) if writer.kind == "z" else by for writer, by in differences), 0.0)

    def read(own: Sequence[Input], stream: Tensor | None) -> Tensor:
        layer = own[0][0].layer if isinstance(own[0][0], Site) else None
        return torch.stack([(streams[layer] if stream is None else stream) + added(place) for place in own], 2)

    layers = {site.layer for site, through in wanted if isinstance(site, Site) and through is not None}
    listening: list[Hook] = [
        *((writer.hook, partial(record, writer=writer)) for writer in {edge.writer for edge in at.edges}),
        *((f"blocks.{layer}.hook_resid_pre", partial(keep, layer=layer)) for layer in layers),
    ]
    with reading(model, wanted, read) as (heads, logits):
        yield heads, [*listening, *logits]
