"""The vectors that probes read, one a position."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, Site
from mnemoscope.interventions.recordings import read, recorded, results
from mnemoscope.interventions.regions import check_exists, region


def check_site(model: HookedModel, site: Site) -> None:
    """Refuse a site that holds no single vector a position.

    Raises:
        InputError: Attention weights, all heads at once, or a site that the model has not.
    """
    check_exists(model, site)
    if site.kind in ATTENTION:
        raise InputError(f"a probe reads a vector a position; {site} holds one number a query and key: take q, k or z")
    if site.kind in BY_HEAD and site.head is None:
        raise InputError(f"a probe reads a vector a position; name a head of {site}, or take attn_out")


def positions(site: Site, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """Where in each sequence a site lies."""
    mask = region(replace(site, head=None, neuron=None), batch, batch.inputs[..., None])
    return mask.flatten(2)[..., 0].expand(batch.inputs.shape)


@torch.no_grad()
def vectors(model: HookedModel, batch: Batch, sites: Sequence[Site]) -> list[Float[Tensor, "batch pos width"]]:
    """The activations at some sites in float64, at all positions, from one forward pass a chunk.

    Raises:
        InputError: An activation is NaN or infinite.
    """
    found = recorded(model, batch, {read(site) for site in sites})
    result = [_chosen(model, site, found[read(site)]).double() for site in sites]
    for site, activation in zip(sites, result, strict=True):
        if not activation.isfinite().all():
            raise InputError(f"the activations at {site} hold NaN or infinity; check the model's weights")
    return result


def weights_of(model: HookedModel) -> str:
    """How a model's weights were processed, for results."""
    return "LayerNorm folded" if str(model.cfg.normalization_type).endswith("Pre") else "unprocessed"


def _chosen(model: HookedModel, site: Site, activation: Tensor) -> Tensor:
    if site.kind == "result" and site.layer is not None:
        activation = results(model, site.layer, activation)
    if site.head is not None:
        return activation[:, :, site.head]
    return activation if site.neuron is None else activation[..., neurons(site)]


def neurons(site: Site) -> list[int]:
    """The neurons that a site names."""
    return list(site.neuron) if isinstance(site.neuron, tuple) else [site.neuron]  # pyright: ignore[reportReturnType]
