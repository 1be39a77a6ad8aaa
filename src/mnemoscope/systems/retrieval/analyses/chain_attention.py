"""Attention of each head from one place of a chain to another: the paths that a circuit is made of.

Places are those of `Retrieval`: 0 the query, 2j - 1 and 2j the first and second symbol of its pair of step j. The
attention of a place is averaged over sequences and chains; what does not go to the own chain is `elsewhere`.

*Does not show* what is used: attention is correlational. `circuit` replaces it.
"""

from collections.abc import Sequence
from functools import cache

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError
from mnemoscope.analyses import layer_attention
from mnemoscope.core import Mechanism
from mnemoscope.core.patterns import attends_to

ELSEWHERE = "elsewhere"


def chain_attention(model: HookedModel, batch: Batch, *, layers: Sequence[int] | None = None) -> xr.DataArray:
    """Mean attention within chains, in all layers or some, over (layer, head, place, to); rows add up to one.

    `to` has the places and `elsewhere`. Chains that were rewired count as far as a query leads along them. Raises
    InputError where the model does not fit the batch.
    """
    places, chosen = n_places(batch), list(range(model.cfg.n_layers) if layers is None else layers)
    found = []
    for layer in chosen:
        means = between_places(layer_attention(model, layer, batch), batch)
        found.append(torch.cat((means, 1 - means.sum(-1, keepdim=True)), -1))
    coords = {
        "layer": chosen,
        "head": list(range(model.cfg.n_heads)),
        "place": list(range(places)),
        "to": [*map(str, range(places)), ELSEWHERE],
    }
    attrs = {"unit": "share of attention", "n": len(batch), "weights": "unprocessed"}
    return xr.DataArray(torch.stack(found).numpy(), dims=tuple(coords), coords=coords, name="attention", attrs=attrs)


def between_places(
    weights: Float[Tensor, "batch head_index query key"], batch: Batch
) -> Float[Tensor, "head_index place to"]:
    """Mean weight that positions of a place give to each place of their own chain, on the CPU; NaN counts as none."""
    places = range(n_places(batch))
    own = torch.stack([_of(batch, i) for i in places]).cpu()
    share = own.to(weights.dtype) / own.sum((1, 2), keepdim=True)
    keys = torch.stack([batch.latents[f"at_{j}"] for j in places], -1).cpu()
    at = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    within = weights.cpu().nan_to_num().gather(-1, at) * (keys >= 0)[:, None]
    return torch.einsum("ibq,bhqj->hij", share, within)


def n_places(batch: Batch) -> int:
    """The number of places of a chain; an `InputError` where the batch is of another task."""
    n = sum(name.startswith("at_") for name in batch.latents)
    if not n or "place" not in batch.latents:
        raise InputError("the batch must come from the retrieval problem, whose latents name the places of chains")
    return n


def _of(batch: Batch, place: int) -> Bool[Tensor, "batch pos"]:
    """Positions of a place in chains that a query leads along."""
    return (batch.latents["place"] == place) & (batch.latents["chain"] >= 0)


def path_name(place: int, to: int) -> str:
    """A path, as mechanisms and trajectories call it."""
    return f"{place}→{to}"


@cache
def within_chain(place: int, to: int) -> Mechanism:
    """Attention from one place of a chain to another one of the same chain; it says nothing about other places."""

    def keys(batch: Batch, query: Tensor, key: Tensor) -> Tensor:
        return _of(batch, place)[..., None] & (key == batch.latents[f"at_{to}"][..., None])

    return attends_to(path_name(place, to), keys)


def strongest(attention: xr.DataArray, level: float) -> Sequence[tuple[int, int]]:
    """From each place the other place of its chain with most attention of one head, if at least the share `level`."""
    within = attention.sel(to=[to for to in attention.to.values if to != ELSEWHERE])
    found = []
    for place, row in zip(within.place.values.tolist(), within.values, strict=True):
        best = int(row.argmax())
        if best != place and row[best] >= level:
            found.append((place, best))
    return found
