"""The heads that write the IO name and those that tell it apart, found by path patching.

The roles are those published for GPT-2 small. Every story is paired with itself told with a third name as S2, so that
nothing says which name is right. *Name movers* are the heads whose direct effect on the lead is highest, when what they
write into the logits is taken from the other telling. *Negative movers* are those for which it is lowest. *Inhibitors*
(S-inhibition heads) are the heads whose output is worth most to the lead through the queries of the movers. Heads are
chosen by estimates (EAP-IG), on stories that nothing else is measured on; the measures themselves patch them.

Wang et al. 2022, "Interpretability in the wild: a circuit for indirect object identification in GPT-2 small".

Name movers: heads that copy names, and the tokens that they attend to.

The score of a head is a product, measured on prompts that nothing else is measured on: its attention from the last
token to the IO name, and the share of names whose own logit, among those of all names, its OV circuit raises most. The
circuit is applied to the residual stream after the first block where the name stands, as in Wang et al. 2022,
"Interpretability in the wild: a circuit for indirect object identification in GPT-2 small".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import xarray as xr
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, Edge, HookedModel, Named, Patch, PromptPairs, Site
from mnemoscope.analyses import integrate_edges
from mnemoscope.interventions import Recordings, intervene
from mnemoscope.systems.language_models.prompts import givers, single_names, tokenizer_of
from mnemoscope.systems.language_models.reading import ROWS, Head, highest, n_chosen


@torch.no_grad()
def name_copying(model: HookedModel, batch: Batch) -> xr.DataArray:
    """The score over (layer, head), from 0 to 1, on stories of names with the latents `IO` and `last`."""
    n_layers = model.cfg.n_layers
    stream = Site(kind="resid_post", layer=0).hook
    patterns = {Site(kind="pattern", layer=layer).hook: layer for layer in range(n_layers)}
    _, cache = model.run_with_cache(
        batch.inputs, names_filter=lambda name: name == stream or name in patterns, stop_at_layer=n_layers
    )
    rows, last, due = torch.arange(len(batch)), batch.latents["last"], batch.latents["IO"]
    attention = torch.stack([cache[name][rows, :, last, due].double().mean(0) for name in patterns])
    names = batch.inputs[rows, due]
    copied = _copied(model, cache[stream][rows, due], names)
    values = (attention * copied).cpu().numpy()
    return xr.DataArray(
        values, dims=("layer", "head"), coords={"layer": range(n_layers), "head": range(values.shape[1])}
    )


def _copied(
    model: HookedModel, stream: Float[Tensor, "name d_model"], names: Tensor
) -> Float[Tensor, "layer head_index"]:
    """The share of names that each head's OV circuit raises more than any other name."""
    tokenizer = tokenizer_of(model)
    known = [tokenizer(f" {name}", add_special_tokens=False)["input_ids"][0] for name in single_names(model)]
    weights = dict(model.named_parameters())
    unembed = weights["unembed.W_U"][:, known]
    if "ln_final.w" in weights:
        unembed = weights["ln_final.w"][:, None] * unembed
    found = []
    for layer in range(model.cfg.n_layers):
        block = model.blocks[layer]
        values = einsum(block.ln1(stream), block.attn.W_V, "name d_model, head d_model d_head -> name head d_head")
        written = einsum(values, block.attn.W_O, "name head d_head, head d_head d_model -> name head d_model")
        written = written - written.mean(-1, keepdim=True)
        logits = einsum(written, unembed, "name head d_model, d_model known -> name head known")
        best = torch.tensor(known, device=names.device)[logits.argmax(-1)]
        sure = logits.amax(-1) > logits.mean(-1)  # a head that writes nothing copies nothing
        found.append(((best == names[:, None]) & sure).double().mean(0))
    return torch.stack(found)


@torch.no_grad()
def attention_from_last(
    model: HookedModel, batch: Batch, heads: Sequence[Head], places: Sequence[str]
) -> Float[np.ndarray, "place batch"]:
    """The mean attention of heads from the last token to places that latents name."""
    names = {Site(kind="pattern", layer=layer).hook for layer, _ in heads}
    stop = max(layer for layer, _ in heads) + 1
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names, stop_at_layer=stop)
    rows, last = torch.arange(len(batch)), batch.latents["last"]
    each = [cache[Site(kind="pattern", layer=layer).hook][rows, head, last] for layer, head in heads]
    mean = torch.stack(each).mean(0)
    found = [mean[rows, batch.latents[place]] for place in places]
    return torch.stack(found).double().cpu().numpy()


Patches = Callable[[slice], list[Patch]]
"""Patches for a range of rows of the stories."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Heads by what they do, strongest first."""

    movers: list[Head]
    negative: list[Head]
    inhibitors: list[Head]
    """None where all movers are in the first layer."""


def tellings(model: HookedModel, *, n: int, seed: int) -> PromptPairs:
    """`n` stories of two names, with the latents of `givers`, and the same with a third name as S2; the foil is S."""
    pairs, apart = givers(model, n=n, seed=seed), givers(model, n=n, seed=seed, apart=True).clean
    return replace(pairs, corrupted=replace(apart, targets=pairs.corrupted.targets), name="who is said again")


def find_roles(model: HookedModel, pairs: PromptPairs, *, share: float) -> Roles:
    """The heads of each role, a share of all heads each; inhibitors only in layers before that of the last mover."""
    n_layers, n = model.cfg.n_layers, n_chosen(model, share)
    heads = [(layer, head) for layer in range(n_layers) for head in range(model.cfg.n_heads)]
    direct = _worth(model, pairs, {head: [Edge(writer=_site(head))] for head in heads})
    movers = highest(direct, n)
    negative = highest(-direct, n)
    queries = {head: _into_queries(head, movers) for head in heads}
    fed = _worth(model, pairs, {head: edges for head, edges in queries.items() if edges and head not in movers})
    inhibitors = [(layer, head) for layer, head in highest(fed, n) if np.isfinite(fed.values[layer, head])]
    return Roles(movers=movers, negative=negative, inhibitors=inhibitors)


def _site(head: Head) -> Site:
    return Site(kind="z", layer=head[0], head=head[1])


def _into_queries(writer: Head, readers: Sequence[Head]) -> list[Edge]:
    later = [reader for reader in readers if reader[0] > writer[0]]
    return [Edge(writer=_site(writer), reader=_site(reader), through="q") for reader in later]


def _worth(model: HookedModel, pairs: PromptPairs, edges: dict[Head, list[Edge]]) -> xr.DataArray:
    """The estimated fall of the lead when a head's edges carry the other telling; -inf for heads without edges."""
    worth = np.full((model.cfg.n_layers, model.cfg.n_heads), -np.inf)
    chosen = [edge for of in edges.values() for edge in of]
    if chosen:
        found = integrate_edges(model, pairs, chosen=chosen, directions=["noising"])
        fall = (found.clean - found.value).squeeze(("direction", "metric")).mean("prompt").to_numpy()
        ends = np.cumsum([len(of) for of in edges.values()])
        for head, part in zip(edges, np.split(fall, ends[:-1]), strict=True):
            worth[head] = part.sum()
    n_layers, n_heads = worth.shape
    return xr.DataArray(worth, dims=("layer", "head"), coords={"layer": range(n_layers), "head": range(n_heads)})


def written_otherwise(pairs: PromptPairs, heads: Sequence[Head]) -> Patches:
    """Patches that take the direct contributions of heads to the logits from the other telling."""
    return lambda rows: _patches([Edge(writer=_site(head)) for head in heads], pairs.corrupted.select(rows))


def told_otherwise(pairs: PromptPairs, writers: Sequence[Head], readers: Sequence[Head]) -> Patches:
    """Patches that take from the other telling what some heads add to the queries of others."""
    edges = [edge for head in writers for edge in _into_queries(head, readers)]
    return lambda rows: _patches(edges, pairs.corrupted.select(rows))


def _patches(edges: Sequence[Edge], other: Batch) -> list[Patch]:
    source = Named(name="the other telling", value=other)
    return [Patch(site=edge, source=source) for edge in edges]


def attention_to_due(
    model: HookedModel, batch: Batch, heads: Sequence[Head], patches: Patches = lambda rows: []
) -> Float[np.ndarray, " batch"]:
    """The mean attention of heads, under patches, from the last token to the IO name, less that to both S1 and S2."""
    recordings, found = Recordings(model), []
    for start in range(0, len(batch), ROWS):
        rows = slice(start, start + ROWS)
        part = batch.select(rows)
        with intervene(model, part, patches(rows), recordings=recordings):
            due, first, again = attention_from_last(model, part, heads, ("IO", "S1", "S"))
        found.append(due - first - again)
    return np.concatenate(found)
