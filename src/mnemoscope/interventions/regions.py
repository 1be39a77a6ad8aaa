"""Masks of the entries that a site selects in an activation."""

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.site import ATTENTION, BY_HEAD, Position, Site


def region(site: Site, batch: Batch, activation: Tensor) -> Bool[Tensor, "..."]:
    """A mask of the entries that the site selects, which broadcasts to the activation of a batch.

    Only the sizes of `activation` count: `batch pos ...`, or `batch head_index query key`. Raises InputError where a
    position lies outside the sequences, or the batch has no latent of that name.
    """
    if site.kind in ATTENTION:
        both = zip((site.pos, site.key), activation.shape[-2:], strict=True)
        queries, keys = (_positions(wanted, batch, n, site) for wanted, n in both)
        mask, axis = queries[:, None, :, None] & keys[:, None, None], 1
    else:
        mask = _positions(site.pos, batch, activation.shape[1], site)
        mask = mask[:, :, None, None] if site.kind in BY_HEAD else mask[:, :, None]
        axis = 2
    mask = mask.to(activation.device)
    chosen = several(site.neuron if site.head is None else site.head)
    if not chosen:
        return mask
    along = torch.zeros(activation.shape[axis], dtype=torch.bool, device=activation.device)
    along[list(chosen)] = True
    return mask & along.view(-1, *(1,) * (activation.ndim - axis - 1))


def positions(wanted: Position, batch: Batch) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, with one row if it is the same for all sequences; errors as for `region`."""
    site = Site(kind="resid_pre", layer=0, pos=wanted)
    return region(site, batch, batch.inputs[..., None])[..., 0]


def several(numbers: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Numbers as a tuple; None gives an empty one."""
    return numbers if isinstance(numbers, tuple) else () if numbers is None else (numbers,)


def _positions(wanted: Position | None, batch: Batch, n_pos: int, site: Site) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, with one row if it is the same for all sequences."""
    if isinstance(wanted, str) and wanted in batch.positions:
        wanted = batch.positions.index(wanted)
    if isinstance(wanted, str):
        return _by_latent(wanted, batch, n_pos, site)
    mask = torch.full((1, n_pos), wanted is None)
    for pos in several(wanted):
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
