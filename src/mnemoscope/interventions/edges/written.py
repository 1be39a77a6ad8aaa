"""A recorded run as a graph needs it: what every part wrote, and what the stream was where it is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import writers
from mnemoscope.interventions.patching.runs import check_numbers

Freeze = Literal["attention", "layer_norm"]
FREEZES: tuple[Freeze, ...] = get_args(Freeze)
"""What keeps its values of the unchanged run: attention patterns, or the scales of normalisations."""

_REFUSED = {
    "positional_embedding_type": ("shortformer",),
    "use_normalization_before_and_after": (True,),
    "original_architecture": ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A forward pass without interventions.

    Attributes:
        outputs: What each writer (`graph.writers`, embeddings apart) added to the residual stream.
        kept: By hook point: the stream where it is read, patterns and scales.
        logits: At the positions that metrics read.
    """

    outputs: Float[Tensor, "prompt pos writer d_model"]
    kept: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]


def check_graph(model: HookedModel) -> None:
    """Refuse a model whose parts do not simply add up in the residual stream, or share inputs.

    Raises:
        InputError: Naming what is not supported.
    """
    cfg, who = model.cfg, "edges of this model cannot be told apart"
    for name, refused in _REFUSED.items():
        if getattr(cfg, name, None) in refused:
            raise InputError(f"{who}, because {name} is {getattr(cfg, name)}; patch activations with analyses.patching")
    if getattr(cfg, "n_key_value_heads", None) not in (None, cfg.n_heads):
        raise InputError(f"{who}, because its heads share keys and values; patch activations with analyses.patching")
    if "blocks.0.attn.W_Q" not in dict(model.named_parameters()):
        raise InputError(f"{who}, because it does not keep weights as a HookedTransformer does; load it as one")


@torch.no_grad()
def written(
    model: HookedModel, tokens: Int[Tensor, "prompt pos"], read: Int[Tensor, " read"], wanted: frozenset[Freeze]
) -> Written:
    """Run a model; hooks that are on it take part.

    Raises:
        InputError: The logits hold NaN.
    """
    names = {*_outputs(model).values(), *_streams(model), *_frozen(model, wanted)}
    logits, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
    check_numbers(logits)
    kept = {name: cache[name].expand(len(tokens), *cache[name].shape[1:]) for name in names}
    parts = []
    for site, name in _outputs(model).items():
        part = kept[name]
        parts.append(of_head(model, site, part) if site.kind == "z" else part)
    return Written(
        outputs=torch.stack(parts, 2),
        kept={name: kept[name] for name in (*_streams(model), *_frozen(model, wanted))},
        logits=logits.index_select(1, read.to(logits.device)),
    )


def of_head(model: HookedModel, site: Site, z: Float[Tensor, "*rows head_index d_head"]) -> Tensor:
    """What one head adds to the residual stream."""
    writes = model.blocks[site.layer].attn.W_O[site.head]
    return einsum(z[..., site.head, :], writes, "... d_head, d_head d_model -> ... d_model")


def _outputs(model: HookedModel) -> dict[Site, str]:
    return {site: site.hook for site in writers(model, embeddings="apart")}


def _streams(model: HookedModel) -> list[str]:
    layers = range(model.cfg.n_layers)
    found = [f"blocks.{layer}.hook_resid_pre" for layer in layers]
    if not (model.cfg.attn_only or model.cfg.parallel_attn_mlp):
        found += [f"blocks.{layer}.hook_resid_mid" for layer in layers]
    return [*found, f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]


def _frozen(model: HookedModel, wanted: frozenset[Freeze]) -> list[str]:
    ends = {"attention": ".attn.hook_pattern", "layer_norm": ".hook_scale"}
    return [name for name in model.hook_dict if name.endswith(tuple(ends[part] for part in wanted))]
