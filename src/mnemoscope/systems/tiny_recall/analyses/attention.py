"""Attention in permutation lookup: by role of the head, and by slot.

The attention of heads on unseen mappings, by role: the measures behind claims about attention patterns.

Sequences over unseen mappings are halved by mapping. On the fresh sequences of one half, `choose_roles` names the
elimination head: its mean ablation costs most log-probability of the eliminated value. Means are over sequences drawn
from the task's own distribution; nothing else is drawn. Attention is measured on all sequences of the other half, each
counting the same.

*Shows* where the head looks that elimination needs most, and where the others do.

*Does not show* what a head contributes: patterns are correlational. Some head gets the name even in a model that has
not learned, or in which no head is needed more than another.

Shares of attention in permutation lookup, from `attention_by_mechanism`, by slot and in words of the task.

For every head and every slot k, seen from x_k and from y_k, shares are means of attention on

- `self`: the query itself; `previous_y`: the y just before; `earlier_y`, `earlier_x`: all earlier y, all earlier x;
- `own_x`: the x of the same pair, from y only;
- `same_x`, `after_same_x`: the earlier occurrence of the same x and the y after it, in the last slot of repeats only.

Shares overlap: `previous_y` is part of `earlier_y`. Patterns are correlational: only an intervention shows what a head
contributes.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from mnemoscope import Batch, HookedModel, Subject, Task, generator
from mnemoscope.analyses import attention_by_mechanism, by_role, choose_roles, every_sequence
from mnemoscope.core import memoize
from mnemoscope.core.patterns import (
    after_earlier_same,
    attends_to,
    earlier,
    earlier_same,
    identity,
    one_hot,
    previous,
    same_slot,
)
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

SKILL = "elimination"
N_REFERENCE = 2048
EARLIER_Y = earlier(period=2, phase=1, name="earlier y")
ITSELF, JUST_BEFORE = identity(), previous()
SAME_X, AFTER_SAME_X = earlier_same(period=2), after_earlier_same(period=2)
MECHANISMS = (EARLIER_Y, ITSELF, JUST_BEFORE, SAME_X, AFTER_SAME_X)


@lru_cache(maxsize=4)
def unseen_halves(task: Task) -> tuple[Batch, Batch]:
    """Every sequence over every other unseen mapping, and those over the remaining ones.

    The halves share no mapping, so that a role chosen on the first cannot depend on mappings of the second.
    """
    batch = every_sequence(task)
    number = batch.latents["mapping"].unique(dim=0, return_inverse=True)[1]
    return batch.select(number % 2 == 0), batch.select(number % 2 == 1)


@memoize
def heads_by_need(subject: Subject) -> Mapping[str, str]:
    """Heads (`L0H1`) and their roles, from the one that elimination needs most on."""
    selection, _ = unseen_halves(subject.task)
    selection = selection.select(subject.task.skills(selection)[SKILL].any(1))
    reference = subject.task.sample(N_REFERENCE, split="test", generator=generator(subject.seed, "reference", "test"))
    skills = {SKILL: subject.task.skills(selection)[SKILL]}
    named = choose_roles(subject.model, selection, skills=skills, reference=reference)
    return MappingProxyType({name: role for name, role in named.items() if name != role})


@memoize
def attention_by_role(subject: Subject) -> xr.Dataset:
    """`attention_by_mechanism` on unseen mappings by `role`, the elimination head first: `all`, `fresh`, `repeat`."""
    _, test = unseen_halves(subject.task)
    groups = {"all": torch.ones(len(test), dtype=torch.bool), **subject.task.subgroups(test)}
    found = attention_by_mechanism(subject.model, test, MECHANISMS, subgroups=groups, period=2)
    return by_role(found, heads_by_need(subject))


def on_earlier_y(heads: xr.Dataset, *, role: int = 0, subgroup: str = "all") -> xr.DataArray:
    """The attention of a role (0: elimination head) from x on all earlier y together, over slots 2 to V (`slot`)."""
    return _from_x(heads.share, subgroup).isel(role=role).sel(mechanism=EARLIER_Y.name)


def evenness(heads: xr.Dataset, *, role: int = 0, subgroup: str = "all") -> xr.DataArray:
    """Sum over the earlier y of min(attention, 1 / their number), over slots 2 to V; 1 only if all get the same."""
    return _from_x(heads.overlap, subgroup).isel(role=role).sel(mechanism=EARLIER_Y.name)


def on_y_before(heads: xr.Dataset, *, role: int = 1) -> xr.DataArray:
    """The share of a head's attention from x on the y just before, over slots 2 to V (`slot`)."""
    return _from_x(heads.share, "all").isel(role=role).sel(mechanism=JUST_BEFORE.name)


def on_itself(heads: xr.Dataset, *, role: int = 1) -> xr.DataArray:
    """The share of a head's attention from y on itself over slots 1 to V - 1 (`slot`), which training never scores."""
    y = heads.share.sel(subgroup="all").isel(role=role, query=slice(1, None, 2))
    return y.sel(mechanism=ITSELF.name)


def _from_x(values: xr.DataArray, subgroup: str) -> xr.DataArray:
    """The values for queries x of slots 2 to V."""
    return values.sel(subgroup=subgroup).isel(query=slice(2, None, 2))


SLOT_MECHANISMS = (
    replace(identity(), name="self"),
    attends_to("previous_y", lambda batch, query, key: key == query // 2 * 2 - 1),
    earlier(period=2, phase=1, name="earlier_y"),
    attends_to("earlier_x", lambda batch, query, key: (key % 2 == 0) & (key // 2 < query // 2)),
    replace(same_slot(), name="own_x"),
    replace(one_hot("source_pos", query=-1), name="same_x"),
    replace(one_hot("source_pos", query=-1, shift=1), name="after_same_x"),
)
TARGETS = tuple(mechanism.name for mechanism in SLOT_MECHANISMS)


def attention_shares(model: HookedModel, task: PermutationLookup, batch: Batch) -> xr.Dataset:
    """Mean shares of attention by subgroup, head, query (x or y) and slot.

    `share` is over (subgroup, layer, head, query, slot, target), and `to_y`, the share on the y of each slot, over
    (..., slot, source_slot). NaN where a target does not exist (the last y is not an input) or a subgroup is empty.
    """
    groups = task.subgroups(batch)
    present = {name: mask for name, mask in groups.items() if mask.any()}
    measures = ("share", "mean_pattern")
    found = attention_by_mechanism(model, batch, SLOT_MECHANISMS, subgroups=present, period=2, measures=measures)
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
