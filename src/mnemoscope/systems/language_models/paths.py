"""The contributions of earlier heads to keys or queries of later ones, changed for the attention of these alone.

The residual stream that a layer reads is a sum of which every earlier head gives a term. For one input, keys or
queries, the terms of some heads are replaced by their means over other prompts, or by those of another telling;
normalisation, projection and whatever follows are the model's own. Each layer is run by itself on the stream that it
had, so that no later layer sees the change: only the direct path is changed (Goldowsky-Dill et al. 2023). Heads that
share keys have them changed together.

*Does not show* what reaches a head through other heads and MLPs in between.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Site
from mnemoscope.systems.language_models.reading import ROWS, Head

Through = Literal["k", "q"]


@torch.no_grad()
def attention_to_successor(
    model: HookedModel,
    batch: Batch,
    readers: Sequence[Head],
    cuts: Sequence[tuple[Through, Sequence[Head]]],
    reference: Batch,
) -> Float[Tensor, "cut batch"]:
    """The attention that readers give to the token after the earlier occurrence of the query's, on repeated words.

    It is a mean over the readers and the scored positions. Each cut takes the output of some heads from one input of
    the readers, by itself; the first row has none. Means are over `reference`, prompts of the same length, by position.
    """
    writers = sorted({layer for _, heads in cuts for layer, _ in heads})
    mean = {layer: z.mean(0) for layer, z in seen_by(model, reference, [], writers).items()}
    found = []
    for start in range(0, len(batch), ROWS):
        part = batch.select(slice(start, start + ROWS))
        seen = seen_by(model, part, sorted({layer for layer, _ in readers}), writers)
        each = [_successor(part, {layer: seen[f"pattern {layer}"] for layer, _ in readers}, readers)]
        for through, heads in cuts:
            away = {
                layer: {h: seen[layer][:, :, h] - mean[layer][:, h] for at, h in heads if at == layer}
                for layer in writers
            }
            each.append(_successor(part, changed_patterns(model, seen, away, readers, through), readers))
        found.append(torch.stack(each))
    return torch.cat(found, 1).cpu()


@torch.no_grad()
def seen_by(model: HookedModel, batch: Batch, readers: Sequence[int], writers: Sequence[int]) -> dict[Any, Tensor]:
    """By layer the z of writers; of readers `pattern <layer>` and `stream <layer>`, the stream that they read."""
    names: dict[str, Any] = {Site(kind="z", layer=layer).hook: layer for layer in writers}
    for layer in readers:
        names[Site(kind="pattern", layer=layer).hook] = f"pattern {layer}"
        names[Site(kind="resid_pre", layer=layer).hook] = f"stream {layer}"
    last = max([*readers, *writers], default=0)
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names, stop_at_layer=last + 1)
    return {place: cache[name] for name, place in names.items()}


@torch.no_grad()
def changed_patterns(
    model: HookedModel,
    seen: Mapping[Any, Tensor],
    away: Mapping[int, Mapping[int, Tensor]],
    readers: Sequence[Head],
    through: Through,
) -> dict[int, Float[Tensor, "batch head_index query key"]]:
    """The patterns of the readers' layers, each with what is `away` taken from its own keys or queries alone."""
    patterns: dict[int, Tensor] = {}
    for layer in sorted({layer for layer, _ in readers}):

        def change(inputs: Tensor, hook: Any, *, layer: int = layer) -> Tensor:
            return _projected(model, layer, through, _stream_without(model, seen, away, layer), inputs)

        def read(pattern: Tensor, hook: Any, *, layer: int = layer) -> None:
            patterns[layer] = pattern.clone()

        hooks = [(Site(kind=through, layer=layer).hook, change), (Site(kind="pattern", layer=layer).hook, read)]
        model.run_with_hooks(seen[f"stream {layer}"], fwd_hooks=hooks, start_at_layer=layer, stop_at_layer=layer + 1)
    return patterns


def _stream_without(
    model: HookedModel, seen: Mapping[Any, Tensor], away: Mapping[int, Mapping[int, Tensor]], layer: int
) -> Float[Tensor, "batch pos d_model"]:
    stream = seen[f"stream {layer}"].clone()
    for writer, heads in away.items():
        if writer < layer:
            for head, z in heads.items():
                stream -= einsum(
                    z, model.blocks[writer].attn.W_O[head], "b pos d_head, d_head d_model -> b pos d_model"
                )
    return stream


def _projected(model: HookedModel, layer: int, through: Through, stream: Tensor, like: Tensor) -> Tensor:
    """Keys or queries, before rotary positions, of a stream; one for every head that has its own, as in `like`."""
    block = model.blocks[layer]
    weights, biases = (getattr(block.attn, f"{name}_{through.upper()}") for name in "Wb")
    shared = weights.shape[0] // like.shape[2]
    out = einsum(block.ln1(stream), weights[::shared], "b pos d_model, head d_model d_head -> b pos head d_head")
    return (out + biases[::shared]).to(like.dtype)


def _successor(batch: Batch, patterns: Mapping[int, Tensor], readers: Sequence[Head]) -> Float[Tensor, " batch"]:
    """The mean over readers and scored queries of the attention to the token after the earlier occurrence."""
    queries = batch.scored[0].nonzero()[:, 0]
    keys = queries - len(queries)  # as many words as queries and one: their successors lie that far back
    each = [patterns[layer][:, head, queries, keys].double().mean(1) for layer, head in readers]
    return torch.stack(each).mean(0)
