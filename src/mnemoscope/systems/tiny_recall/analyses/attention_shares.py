"""Shares of attention in permutation lookup, from `attention_by_mechanism`, by slot and in words of the task.

For every head and every slot k, seen from x_k and from y_k, shares are means of attention on

- `self`: the query itself; `previous_y`: the y just before; `earlier_y`, `earlier_x`: all earlier y, all earlier x;
- `own_x`: the x of the same pair, from y only;
- `same_x`, `after_same_x`: the earlier occurrence of the same x and the y after it, in the last slot of repeats only.

Shares overlap: `previous_y` is part of `earlier_y`. Patterns are correlational: only an intervention shows what a head
contributes.
"""

from dataclasses import replace

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import attention_by_mechanism
from mnemoscope.core.patterns import attends_to, earlier, identity, one_hot, same_slot
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

MECHANISMS = (
    replace(identity(), name="self"),
    attends_to("previous_y", lambda batch, query, key: key == query // 2 * 2 - 1),
    earlier(period=2, phase=1, name="earlier_y"),
    attends_to("earlier_x", lambda batch, query, key: (key % 2 == 0) & (key // 2 < query // 2)),
    replace(same_slot(), name="own_x"),
    replace(one_hot("source_pos", query=-1), name="same_x"),
    replace(one_hot("source_pos", query=-1, shift=1), name="after_same_x"),
)
TARGETS = tuple(mechanism.name for mechanism in MECHANISMS)


def attention_shares(model: HookedModel, task: PermutationLookup, batch: Batch) -> xr.Dataset:
    """Mean shares of attention by subgroup, head, query (x or y) and slot.

    `share` is over (subgroup, layer, head, query, slot, target), and `to_y`, the share on the y of each slot, over
    (..., slot, source_slot). NaN where a target does not exist (the last y is not an input) or a subgroup is empty.
    """
    groups = task.subgroups(batch)
    present = {name: mask for name, mask in groups.items() if mask.any()}
    measures = ("share", "mean_pattern")
    found = attention_by_mechanism(model, batch, MECHANISMS, subgroups=present, period=2, measures=measures)
    dims = ("subgroup", "layer", "head", "query", "slot")
    result = xr.Dataset(
        {
            "share": ((*dims, "target"), _by_slot(found.share.values)),
            "to_y": ((*dims, "source_slot"), _by_slot(found.mean_pattern.values[..., 1::2])),
        },
        coords={
            **{name: found[name].values for name in ("subgroup", "layer", "head")},
            "query": ["x", "y"],
            "slot": list(range(1, task.n_values + 1)),
            "target": list(TARGETS),
            "source_slot": list(range(1, task.n_values)),
        },
        attrs={"unit": "share of attention", "n": len(batch)},
    )
    return result if len(present) == len(groups) else result.reindex(subgroup=list(groups))


def _by_slot(
    values: Float[np.ndarray, "subgroup layer head pos value"],
) -> Float[np.ndarray, "subgroup layer head query slot value"]:
    """The positions as x and y of each slot; NaN for the last y, which is no input."""
    last = np.full_like(values[:, :, :, :1], np.nan)
    pairs = np.concatenate((values, last), 3).reshape(*values.shape[:3], -1, 2, values.shape[4])
    return pairs.swapaxes(3, 4)
