"""Which entries of an activation a site means."""

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, MLP, Position, Site


def components(model: HookedModel) -> list[Site]:
    """Every head (at z), then every MLP (its output), of a model."""
    heads = [Site(kind="z", layer=n, head=h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads)]
    return heads + ([] if model.cfg.attn_only else [Site(kind="mlp_out", layer=n) for n in range(model.cfg.n_layers)])


def n_kv_heads(model: HookedModel) -> int:
    """Heads of a layer that have keys and values of their own; the others share these, in groups."""
    cfg = model.cfg
    apart = getattr(cfg, "ungroup_grouped_query_attention", False)
    return cfg.n_heads if apart else getattr(cfg, "n_key_value_heads", None) or cfg.n_heads


def check_exists(model: HookedModel, site: Site) -> None:
    """Refuse a site that the model has not.

    Raises:
        InputError: Naming what the model has.
    """
    cfg = model.cfg
    if site.layer is not None:
        in_range(f"the layer of site {site}", site.layer, 0, cfg.n_layers - 1)
    if site.head is not None:
        n_heads = n_kv_heads(model) if site.kind in ("k", "v") else cfg.n_heads
        in_range(f"the head of site {site}", site.head, 0, n_heads - 1)
    if site.kind in (*MLP, "resid_mid") and cfg.attn_only:
        raise InputError(f"site {site} does not exist: the model has no MLP; take a site of an attention layer")
    if site.hook not in model.hook_dict:
        raise InputError(f"site {site} does not exist: the model has no hook point {site.hook}; take another kind")
    for neuron in _several(site.neuron):
        in_range(f"the neuron of site {site}", neuron, 0, cfg.d_mlp - 1)


def region(site: Site, batch: Batch, activation: Tensor) -> Bool[Tensor, "..."]:
    """A mask of the entries that the site means, which broadcasts to the activation of a batch.

    Args:
        site: Where.
        batch: Its latents say where positions that are named after one lie.
        activation: `batch pos ...`, or `batch head_index query key`; its sizes are used only.

    Raises:
        InputError: A position lies outside the sequences, or the batch has no such latent.
    """
    if site.kind in ATTENTION:
        n_query, n_key = activation.shape[-2:]
        mask = _positions(site.pos, batch, n_query, site)[:, None, :, None]
        mask = mask & _positions(site.key, batch, n_key, site)[:, None, None]
        axis = 1
    else:
        mask = _positions(site.pos, batch, activation.shape[1], site)
        mask = mask[:, :, None, None] if site.kind in BY_HEAD else mask[:, :, None]
        axis = 2
    mask = mask.to(activation.device)
    chosen = _several(site.neuron if site.head is None else site.head)
    if not chosen:
        return mask
    along = torch.zeros(activation.shape[axis], dtype=torch.bool, device=activation.device)
    along[list(chosen)] = True
    return mask & along.view(-1, *(1,) * (activation.ndim - axis - 1))


def positions(wanted: Position, batch: Batch) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, of one row where it is the same for all sequences; errors as for `region`."""
    site = Site(kind="resid_pre", layer=0, pos=wanted)
    return region(site, batch, batch.inputs[..., None])[..., 0]


def _several(numbers: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return numbers if isinstance(numbers, tuple) else () if numbers is None else (numbers,)


def _positions(wanted: Position | None, batch: Batch, n_pos: int, site: Site) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, of one row where it is the same for all sequences."""
    if isinstance(wanted, str) and wanted in batch.positions:
        wanted = batch.positions.index(wanted)
    if isinstance(wanted, str):
        return _by_latent(wanted, batch, n_pos, site)
    mask = torch.full((1, n_pos), wanted is None)
    for pos in _several(wanted):
        in_range(f"a position of site {site}", pos, -n_pos, n_pos - 1)
        mask[0, pos] = True
    return mask


def _by_latent(name: str, batch: Batch, n_pos: int, site: Site) -> Bool[Tensor, "batch pos"]:
    known = (*batch.positions, *batch.latents)
    one_of(f"the name or the latent that gives the position of site {site}", name, known)
    latent = batch.latents[name]
    if latent.dtype == torch.bool and latent.shape == (len(batch), n_pos):
        return latent
    if latent.shape != (len(batch),) or latent.dtype.is_floating_point or latent.dtype == torch.bool:
        raise InputError(
            f"latent {name} must hold one position a sequence or a mask (batch, pos) to be the position of site "
            f"{site}; it has shape {tuple(latent.shape)} and type {latent.dtype}"
        )
    in_range(f"latent {name} as a position", int(latent.max()), -n_pos, n_pos - 1)
    return latent[:, None] == torch.arange(n_pos, device=latent.device)
