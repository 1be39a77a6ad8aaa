"""The attention of heads on unseen mappings, by role: the measures behind claims about attention patterns.

Sequences over unseen mappings are halved by mapping. On the fresh sequences of one half, `choose_roles` names the
elimination head: its mean ablation costs most log-probability of the eliminated value. Means are over sequences drawn
from the task's own distribution; nothing else is drawn. Attention is measured on all sequences of the other half, each
counting the same.

*Shows* where the head looks that elimination needs most, and where the others do.

*Does not show* what a head contributes: patterns are correlational. Some head gets the name even in a model that has
not learned, or in which no head is needed more than another.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import torch
import xarray as xr

from mnemoscope import Batch, Subject, Task, generator
from mnemoscope.analyses import attention_by_mechanism, by_role, choose_roles, every_sequence
from mnemoscope.core import memoize
from mnemoscope.core.patterns import after_earlier_same, earlier, earlier_same, identity, previous

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
