"""What every head attends to, by mechanism: search, shares and scores put together.

What each shows and does not show stands in its own module.
"""

import xarray as xr

from mnemoscope.analyses.mechanisms.scores import head_scores
from mnemoscope.analyses.mechanisms.search import TOLERANCE, reverse_engineer
from mnemoscope.analyses.mechanisms.shares import attention_by_mechanism
from mnemoscope.core.batch import Batch
from mnemoscope.core.mechanism import Mechanism
from mnemoscope.core.patterns import (
    after_earlier_same,
    common,
    earlier_same,
    earlier_x,
    earlier_y,
    first,
    for_pairs,
    identity,
    previous,
    same_slot,
)
from mnemoscope.core.protocols import HookedModel, Task


def read_heads(
    model: HookedModel, task: Task, batch: Batch, *, tolerance: float = TOLERANCE, seed: int = 0
) -> dict[str, xr.Dataset]:
    """The mechanisms of all heads.

    Args:
        model: Any hooked model.
        task: Says in what slots its sequences come; pairs have mechanisms of their own.
        batch: One half searches, the other tests; shares are taken over all of it.
        tolerance: Nats by which a mechanism may raise the loss.
        seed: Of the controls.

    Returns:
        `heads`, `joint`, `paths`, `selection`: from `reverse_engineer`; `paths` is empty where no head was replaced.
        `shares`: from `attention_by_mechanism`.
        `scores`: from `head_scores`.
    """
    mechanisms = for_pairs() if task.slot_size == 2 else common()
    tree = reverse_engineer(model, batch, mechanisms, skills=task.skills(batch), tolerance=tolerance, seed=seed)
    shares = attention_by_mechanism(
        model, batch, _specific_first(task.slot_size), subgroups=task.subgroups(batch) or None, period=task.slot_size
    )
    found = {name: tree[name].to_dataset() for name in ("heads", "joint", "selection")}
    found["paths"] = tree["paths"].to_dataset() if "paths" in tree.children else xr.Dataset()
    return {**found, "shares": shares, "scores": head_scores(model, batch)}


def _specific_first(slot_size: int) -> tuple[Mechanism, ...]:
    """What attention is divided among: of two that name a key the earlier gets its weight."""
    copies = (earlier_same(period=slot_size), after_earlier_same(period=slot_size), identity())
    if slot_size == 2:
        return (*copies, same_slot(), earlier_y(), earlier_x())
    return (*copies, previous(), first())
