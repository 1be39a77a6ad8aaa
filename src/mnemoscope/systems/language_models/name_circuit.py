"""The heads that write the IO name and those that tell it apart, found by path patching.

The roles are those published for GPT-2 small. Every story is paired with itself told with a third name as S2, so that
nothing says which name is right. The direct effect of a head is the fall of the lead when what it writes into the
logits is taken from the other telling. *Name movers* attend to the IO name and have the highest direct effects.
*Negative movers* attend to it and have the lowest. *Inhibitors* (S-inhibition heads) attend to S2, and the attention of
the movers to the IO name falls most when what they add to its queries is taken from the other telling (`paths`). Heads
are chosen on stories that nothing else is measured on.

Wang et al. 2022, "Interpretability in the wild: a circuit for indirect object identification in GPT-2 small".

Heads that copy names, and the tokens that they attend to: the score of a head is a product, its attention from the last
token to the IO name, and the share of names whose own logit, among those of all names, its OV circuit raises most. The
circuit is applied to the residual stream after the first block where the name stands, as in Wang et al. 2022.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Intervention, PromptPairs, SetPattern, Site
from mnemoscope.core import Mechanism
from mnemoscope.systems.language_models.paths import changed_patterns, seen_by
from mnemoscope.systems.language_models.prompts import givers, single
from mnemoscope.systems.language_models.reading import Head, highest, n_chosen
from mnemoscope.systems.language_models.words import COMMON, GIVING, NAMES


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
    return over_heads((attention * copied).cpu().numpy())


def _copied(
    model: HookedModel, stream: Float[Tensor, "name d_model"], names: Tensor
) -> Float[Tensor, "layer head_index"]:
    """The share of names that each head's OV circuit raises more than any other name."""
    known = list(single(model, [name for each in NAMES.values() for name in each]).values())
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
) -> Float[np.ndarray, "place head batch"]:
    """The attention of each head from the last token to places that latents name."""
    names = {Site(kind="pattern", layer=layer).hook for layer, _ in heads}
    stop = max(layer for layer, _ in heads) + 1
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names, stop_at_layer=stop)
    rows, last = torch.arange(len(batch)), batch.latents["last"]
    each = torch.stack([cache[Site(kind="pattern", layer=layer).hook][rows, head, last] for layer, head in heads])
    found = [each[:, rows, batch.latents[place]] for place in places]
    return torch.stack(found).double().cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class DirectPaths:
    """Contributions of single heads to the logits after the last token, and their changes in the other telling."""

    model: HookedModel
    stream: Float[Tensor, "batch d_model"]
    """The last residual stream at the last token."""
    changes: Float[Tensor, "batch layer head_index d_model"]
    contrast: Float[Tensor, "batch d_model"]
    """The unembedding of the IO name less that of S."""
    constant: Float[Tensor, " batch"]

    @torch.no_grad()
    def lead(self, heads: Sequence[Head] = ()) -> Float[np.ndarray, " batch"]:
        """The lead of the IO name when these heads write to the logits what they write in the other telling."""
        stream = self.stream + sum(self.changes[:, layer, head] for layer, head in heads)
        final: Any = getattr(self.model, "ln_final", None)
        normed = stream if final is None else final(stream[:, None])[:, 0]
        return ((normed * self.contrast).sum(1) + self.constant).double().cpu().numpy()

    def effects(self) -> xr.DataArray:
        """The mean direct effect of every head over (layer, head)."""
        n_layers, n_heads = self.changes.shape[1:3]
        clean = self.lead()
        values = [[(clean - self.lead([(layer, head)])).mean() for head in range(n_heads)] for layer in range(n_layers)]
        return over_heads(np.array(values))


@torch.no_grad()
def direct_paths(model: HookedModel, pairs: PromptPairs) -> DirectPaths:
    """The direct paths of all heads in pairs of stories that end at the same position."""
    n_layers = model.cfg.n_layers
    final = Site(kind="resid_post", layer=n_layers - 1).hook
    names = [Site(kind="z", layer=layer).hook for layer in range(n_layers)]
    rows, last = torch.arange(len(pairs)), pairs.clean.latents["last"]
    z, stream = [], []
    for side in (pairs.clean, pairs.corrupted):
        _, cache = model.run_with_cache(side.inputs, names_filter=[final, *names], stop_at_layer=n_layers)
        z.append(torch.stack([cache[name][rows, last] for name in names]))
        stream.append(cache[final][rows, last])
    written = torch.stack([block.attn.W_O for block in model.blocks])
    scored = pairs.clean.scored
    due, foil = pairs.clean.targets[scored], pairs.foil[scored]
    parameters = dict(model.named_parameters())
    weights, biases = parameters["unembed.W_U"], parameters["unembed.b_U"]
    return DirectPaths(
        model=model,
        stream=stream[0],
        changes=einsum(z[1] - z[0], written, "layer b head d_head, layer head d_head d_model -> b layer head d_model"),
        contrast=(weights[:, due] - weights[:, foil]).T,
        constant=biases[due] - biases[foil],
    )


def over_heads(values: np.ndarray) -> xr.DataArray:
    """Values by layer and head, labelled."""
    n_layers, n_heads = values.shape
    return xr.DataArray(values, dims=("layer", "head"), coords={"layer": range(n_layers), "head": range(n_heads)})


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Heads by their roles, strongest first."""

    movers: list[Head]
    negative: list[Head]
    inhibitors: list[Head]
    """None where all movers are in the first layer."""


def tellings(model: HookedModel, *, n: int, seed: int, names: str = COMMON, stories: str = GIVING) -> PromptPairs:
    """`n` stories of two names, with the latents of `givers`, and the same with a third name as S2; the foil is S."""
    pairs = givers(model, n=n, seed=seed, names=names, stories=stories)
    apart = givers(model, n=n, seed=seed, apart=True, names=names, stories=stories).clean
    return replace(pairs, corrupted=replace(apart, targets=pairs.corrupted.targets), name="who is said again")


ATTENDS = 0.1
"""Attention to one of three names, beyond that to the two others together, of a head that attends to it."""


def find_roles(model: HookedModel, pairs: PromptPairs, *, share: float) -> Roles:
    """The heads of each role, at most a share of all heads each; inhibitors only in layers before the last mover's.

    Heads that attend as their role says come first; where none does, those with the largest effects are taken.
    """
    n_layers, n_heads, n = model.cfg.n_layers, model.cfg.n_heads, n_chosen(model, share)
    every = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    attention = attention_from_last(model, pairs.clean, every, ("IO", "S1", "S")).mean(-1)
    due, first, again = attention.reshape(3, n_layers, n_heads)
    to_due, to_again = due - first - again >= ATTENDS, again - due - first >= ATTENDS
    direct = direct_paths(model, pairs).effects()
    movers, negative = (_strongest(effects.where(to_due & (effects > 0)), effects, n) for effects in (direct, -direct))
    earlier = [head for head in every if head[0] < max(layer for layer, _ in movers) and head not in movers]
    if fitting := [head for head in earlier if to_again[head]]:
        earlier = fitting
    told = attention_told_otherwise(model, pairs, movers, [[], *([head] for head in earlier)]).mean(1)
    order = np.argsort(told[1:], kind="stable")[:n]
    return Roles(movers=movers, negative=negative, inhibitors=[earlier[i] for i in order])


def _strongest(fitting: xr.DataArray, effects: xr.DataArray, n: int) -> list[Head]:
    """The n heads with the highest of the effects that fit; of all, where none does."""
    n_fitting = int(fitting.count())
    return highest(fitting.fillna(-np.inf), min(n, n_fitting)) if n_fitting else highest(effects, n)


def named_heads(model: HookedModel, pairs: PromptPairs, *, share: float) -> list[Head]:
    """The heads that some score names: those of the largest and smallest direct effects, and those that copy names."""
    direct, copying = direct_paths(model, pairs).effects(), name_copying(model, pairs.clean)
    n = n_chosen(model, share)
    return [head for scores in (direct, -direct, copying) for head in highest(scores, n)]


def attention_told_otherwise(
    model: HookedModel, pairs: PromptPairs, readers: Sequence[Head], sets: Sequence[Sequence[Head]]
) -> Float[np.ndarray, "set batch"]:
    """The mean attention of readers from the last token to the IO name, less that to both S1 and S2.

    For each set of writers, what these add to the queries of the readers is taken from the other telling.
    """
    layers = sorted({layer for heads in sets for layer, _ in heads})
    seen = seen_by(model, pairs.clean, sorted({layer for layer, _ in readers}), layers)
    other = seen_by(model, pairs.corrupted, [], layers) if layers else {}
    rows, latents, found = torch.arange(len(pairs)), pairs.clean.latents, []
    for heads in sets:
        away: dict[int, dict[int, Tensor]] = {}
        for layer, head in heads:
            away.setdefault(layer, {})[head] = seen[layer][:, :, head] - other[layer][:, :, head]
        patterns = changed_patterns(model, seen, away, readers, "q")
        each = torch.stack([patterns[layer][rows, head, latents["last"]] for layer, head in readers]).double().mean(0)
        found.append(each[rows, latents["IO"]] - each[rows, latents["S1"]] - each[rows, latents["S"]])
    return torch.stack(found).cpu().numpy()


@torch.no_grad()
def exchanged_attention(
    model: HookedModel, batch: Batch, heads: Sequence[Head]
) -> Callable[[slice], list[Intervention]]:
    """Interventions that exchange what heads attend to at the IO name and at S1, from the last token.

    A head that copies the name that it attends to then copies the other one. Patterns are those of the model itself.
    """
    names = {Site(kind="pattern", layer=layer).hook for layer, _ in heads}
    stop = max(layer for layer, _ in heads) + 1
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names, stop_at_layer=stop)
    rows, last, due, first = (torch.arange(len(batch)), *(batch.latents[name] for name in ("last", "IO", "S1")))

    def exchanged(layer: int, head: int, chosen: slice) -> Mechanism:
        pattern = cache[Site(kind="pattern", layer=layer).hook][:, head].clone()
        kept = pattern[rows, last].clone()
        kept[rows, due], kept[rows, first] = pattern[rows, last, first], pattern[rows, last, due]
        wanted = torch.full_like(pattern, torch.nan)
        wanted[rows, last] = kept
        return Mechanism(name="names exchanged", pattern=lambda part: wanted[chosen])

    def interventions(chosen: slice) -> list[Intervention]:
        sites = [
            (Site(kind="pattern", layer=layer, head=head), exchanged(layer, head, chosen)) for layer, head in heads
        ]
        return [SetPattern(site=site, mechanism=mechanism) for site, mechanism in sites]

    return interventions
