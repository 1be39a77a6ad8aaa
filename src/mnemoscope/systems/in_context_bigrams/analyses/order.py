"""The steps at which measures of a trajectory pass a threshold, and their order.

The onset is the first kept step of a run from which a measure stays past a threshold (`threshold_onset`, not
interpolated). For claims (`onset`), a measure that never does counts as if it did one step after the last, so that
every difference of onsets is a number. Where neither measure has an onset the two are equal, and a claim that one is
earlier is not met.

Over seeds, `learning_order` takes the onset from .5, or for a loss from the middle between its first and its smallest
value. `order_of_onsets` counts pairs of events and the orders that seeds show; an event without an onset comes last.

*Shows* which of two measures was past its threshold first, at the resolution of the checkpoints.

*Does not show* when anything began to form, nor that the first makes the second possible. A recall of .5 and half of a
loss are not the same amount of learning: the order of unlike measures depends on these thresholds.
"""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import xarray as xr

from mnemoscope import InputError
from mnemoscope.analyses import HALF, Direction, first_step, order_of_onsets, threshold_onset
from mnemoscope.core import one_of

MEMORIES: Mapping[str, str] = {
    "W_O2": "recall_copied_token",
    "W_K2": "recall_remapped_copy",
    "W_K1 early": "recall_previous_token_early",
    "W_K1 all": "recall_previous_token",
}
EVENTS: Mapping[str, str] = {
    **MEMORIES,
    "in-context accuracy": "accuracy_in_context",
    "in-context loss": "loss_in_context",
    "global loss": "loss_global",
}
"""Measure of a trajectory, by name of the event."""


def onset(trajectory: xr.Dataset | None, name: str, threshold: float = HALF, *, direction: Direction = "rise") -> float:
    """The first kept step from which a measure stays past the threshold; the last step + 1 if there is none.

    Past means at least (`rise`) or at most (`fall`). Raises InputError without a trajectory, or where it lacks the
    measure or the measure is not defined for this model.
    """
    values = tracked(trajectory, name)
    by = float(threshold_onset(values, threshold, direction=direction).by)
    return float(values.step[-1]) + 1 if math.isnan(by) else by


def tracked(trajectory: xr.Dataset | None, name: str) -> xr.DataArray:
    """One measure of a trajectory, over `step`, finite at every step; errors as of `onset`."""
    if trajectory is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope track RUN")
    one_of("a measure of the trajectory", name, [str(known) for known in trajectory.data_vars])
    values = trajectory[name]
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite at every step of the trajectory; the model may have no such layer")
    return values


def at_step(trajectory: xr.Dataset | None, name: str, step: int) -> float:
    """A measure at one kept step; errors as of `onset`."""
    values = tracked(trajectory, name)
    one_of("a kept step", step, values.step.to_numpy().tolist())
    return float(values.sel(step=step))


def learning_order(trajectories: xr.Dataset, *, events: Mapping[str, str] = EVENTS, within: float = 0.0) -> xr.Dataset:
    """The onset of each of some measures, and their order, in runs that differ in the seed only, over (seed, step).

    Events have names of measures. Onsets that differ by at most `within` steps, such as the spacing of checkpoints,
    tie. Raises InputError without a seed, or where a measure is missing or not finite.

    Returns:
        Beside `order_of_onsets`: `onset` over (event, seed), the first kept step, NaN: never; `order_share` over
        `distinct_order`, the share of seeds that show each order, the commonest first.
    """
    if "seed" not in trajectories.dims:
        raise InputError("trajectories must be along seed; put one run's along it with expand_dims(seed=[...])")
    onsets = {event: first_step(tracked(trajectories, name)) for event, name in events.items()}
    found = order_of_onsets(onsets, within=within)
    counts = Counter(str(order) for order in found.order.values).most_common()
    return found.assign(
        onset=xr.concat(list(onsets.values()), xr.DataArray(list(onsets), dims="event", name="event")),
        order_share=("distinct_order", [count / found.sizes["seed"] for _, count in counts]),
    ).assign_coords(distinct_order=[order for order, _ in counts])
