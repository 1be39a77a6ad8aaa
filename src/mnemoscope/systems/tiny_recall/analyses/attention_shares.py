"""Where attention goes in the permutation lookup task, in words of the task.

For every head and every slot k, seen from x_k and from y_k, the mean share of attention on: itself (`self`), the y
just before (`previous_y`), all earlier y (`earlier_y`), all earlier x (`earlier_x`), the x of the same pair
(`own_x`, from y only), the earlier occurrence of the same x (`same_x`) and the y after it (`after_same_x`), both
defined on repeats in the last slot only; and, in `to_y`, on the y of each slot. Shares overlap: `previous_y` is
part of `earlier_y`.

Patterns are correlational: where a head looks is not yet what it contributes; that takes an intervention.
"""

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import check_fits, patterns
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

TARGETS = ("self", "previous_y", "earlier_y", "earlier_x", "own_x", "same_x", "after_same_x")


def attention_patterns(model: HookedModel, task: PermutationLookup, batch: Batch) -> xr.Dataset:
    """The attention of every head on each sequence of a batch, for an interactive view.

    Returns:
        `pattern` over (example, layer, head, query, key) and `token`, such as `x2=4`, over (example, key).

    Raises:
        InputError: The model is too small for the task.
    """
    check_fits(model, batch)
    names = [f"{'xy'[pos % 2]}{pos // 2 + 1}" for pos in range(batch.inputs.shape[1])]
    tokens = [[f"{name}={token}" for name, token in zip(names, row, strict=True)] for row in batch.inputs.tolist()]
    return xr.Dataset(
        {
            "pattern": (("example", "layer", "head", "query", "key"), patterns(model, batch).numpy()),
            "token": (("example", "key"), tokens),
        },
        coords={"query": names, "key": names},
    )


def attention_shares(model: HookedModel, task: PermutationLookup, batch: Batch) -> xr.Dataset:
    """Mean shares of attention by subgroup, head, query and slot.

    Returns:
        `share` over (subgroup, layer, head, query, slot, target) and `to_y` over (subgroup, layer, head, query,
        slot, source_slot); `query` is x or y. NaN where a target does not exist (the last y is not an input).

    Raises:
        InputError: The model is too small for the task.
    """
    check_fits(model, batch)
    weights = patterns(model, batch).double()
    masks = _targets(batch)
    groups = task.subgroups(batch)
    rows = {"x": 0, "y": 1}
    share, to_y = [], []
    for mask in groups.values():
        by_target = torch.stack([_mean(weights[mask], masks[name][mask]) for name in TARGETS], -1)
        keys = weights[mask].mean(0)[..., 1::2]
        share.append([_slots(by_target, start, task.n_values) for start in rows.values()])
        to_y.append([_slots(keys, start, task.n_values) for start in rows.values()])
    dims = ("subgroup", "query", "layer", "head", "slot")
    arrays = {
        "share": ((*dims, "target"), torch.stack([torch.stack(pair) for pair in share]).numpy()),
        "to_y": ((*dims, "source_slot"), torch.stack([torch.stack(pair) for pair in to_y]).numpy()),
    }
    coords = {
        "subgroup": list(groups),
        "query": list(rows),
        "slot": list(range(1, task.n_values + 1)),
        "source_slot": list(range(1, task.n_values)),
        "target": list(TARGETS),
        "layer": list(range(model.cfg.n_layers)),
        "head": list(range(model.cfg.n_heads)),
    }
    result = xr.Dataset(arrays, coords=coords, attrs={"unit": "share of attention", "n": len(batch)})
    return result.transpose("subgroup", "layer", "head", "query", "slot", ...)


def _targets(batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
    """For every target, which keys belong to it."""
    n_pos = batch.inputs.shape[1]
    query, key = torch.arange(n_pos)[:, None], torch.arange(n_pos)
    is_y = (key % 2 == 1).expand(n_pos, n_pos)
    slot_of_query, slot_of_key = query // 2, key // 2
    fixed = {
        "self": query == key,
        "previous_y": is_y & (slot_of_key == slot_of_query - 1),
        "earlier_y": is_y & (slot_of_key < slot_of_query),
        "earlier_x": ~is_y & (slot_of_key < slot_of_query),
        "own_x": ~is_y & (slot_of_key == slot_of_query) & (query % 2 == 1),
    }
    masks = {name: mask.expand(len(batch), n_pos, n_pos).clone() for name, mask in fixed.items()}
    source = batch.latents["source_pos"].cpu()
    last = query == n_pos - 1
    masks["same_x"] = (source >= 0)[:, None, None] & last & (key == source[:, None, None])
    masks["after_same_x"] = (source >= 0)[:, None, None] & last & (key == source[:, None, None] + 1)
    return masks


def _mean(weights: Tensor, mask: Bool[Tensor, "batch query key"]) -> Float[Tensor, "layer head query"]:
    """Mean share on the masked keys; NaN for queries for which no sequence has such a key."""
    total = torch.einsum("blhqk,bqk->lhq", weights, mask.to(weights)) / len(weights)
    return total.masked_fill(~mask.any(-1).any(0), torch.nan)


def _slots(values: Tensor, start: int, n_slots: int) -> Float[Tensor, "layer head slot last"]:
    """The queries at `start`, `start` + 2, ... as slots, padded with NaN to `n_slots`."""
    picked = values[:, :, start::2]
    result = torch.full((*picked.shape[:2], n_slots, picked.shape[-1]), torch.nan, dtype=torch.double)
    result[:, :, : picked.shape[2]] = picked
    return result
