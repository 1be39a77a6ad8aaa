"""Ablation: forward passes in which the activation at some sites is replaced."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.intervention import Ablation
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site

Hooks = list[tuple[str, Callable[..., Tensor]]]


def sites(model: HookedModel) -> list[Site]:
    """Every head, then every MLP, of a model."""
    heads = [Site(kind="z", layer=n, head=h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads)]
    return heads + ([] if model.cfg.attn_only else [Site(kind="mlp_out", layer=n) for n in range(model.cfg.n_layers)])


@torch.no_grad()
def reference_activations(
    model: HookedModel, tokens: Int[Tensor, "batch pos"], at: Sequence[Site]
) -> dict[str, Float[Tensor, "batch pos ..."]]:
    """Activations on a reference set at the hook points of the given sites, by name of the hook point."""
    names = {site.hook for site in at}
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
    return {name: cache[name] for name in names}


@torch.no_grad()
def run_ablated(
    model: HookedModel,
    tokens: Int[Tensor, "batch pos"],
    ablations: Sequence[Ablation],
    reference: dict[str, Tensor],
    generator: torch.Generator,
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits with the ablations in force; the model's own hooks stay, and nothing is left behind.

    Args:
        model: Any hooked model.
        tokens: Input.
        ablations: What to replace; none at all gives the clean logits exactly.
        reference: From `reference_activations`; needed for mean and resample.
        generator: Draws the rows for resample.

    Raises:
        InputError: A site does not exist in the model.
    """
    hooks: Hooks = []
    for ablation in ablations:
        _check(model, ablation.site)
        source = reference.get(ablation.site.hook)
        hooks.append((ablation.site.hook, partial(_replace, ablation=ablation, source=source, generator=generator)))
    return model.run_with_hooks(tokens, fwd_hooks=hooks)


def _check(model: HookedModel, site: Site) -> None:
    in_range("the layer of a site", site.layer, 0, model.cfg.n_layers - 1)
    if site.head is not None:
        in_range("the head of a site", site.head, 0, model.cfg.n_heads - 1)
    if site.kind == "mlp_out" and model.cfg.attn_only:
        raise InputError(f"{site} does not exist: the model has no MLP")


def _replace(
    activation: Tensor, hook: Any, *, ablation: Ablation, source: Tensor | None, generator: torch.Generator
) -> Tensor:
    """The hook function: a changed copy of the activation `batch pos (head_index) width`."""
    result = activation.clone()
    index = (slice(None), slice(None)) if ablation.site.head is None else (slice(None), slice(None), ablation.site.head)
    if ablation.kind == "zero":
        result[index] = 0
        return result
    if source is None:
        raise InputError(f"{ablation} needs a reference set: pass reference_activations of it")
    if ablation.kind == "mean":
        result[index] = source.mean(0)[index[1:]]
    else:
        rows = torch.randint(len(source), (len(activation),), generator=generator, device=generator.device)
        result[index] = source[rows.to(source.device)][index]
    return result
