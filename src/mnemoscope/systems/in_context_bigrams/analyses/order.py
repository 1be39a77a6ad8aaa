"""In which order memories, in-context prediction and global bigrams are learned, over seeds.

The onset of a measure is the first kept step from which it stays at .5 or above; that of a loss, from which it stays
at or below the middle between its first and its smallest value. Pairs of events, and the orders that seeds show, are
counted by `dynamics.onsets`; an event that never sets in comes last.

*Shows* which of two was past its threshold first, at the resolution of the checkpoints.

*Does not show* that the first makes the second possible. A recall of .5 and half of a loss are not the same amount of
learning: the order of unlike measures depends on these thresholds.
"""

from collections import Counter
from collections.abc import Mapping

import xarray as xr

from mnemoscope import InputError
from mnemoscope.analyses import first_step, order_of_onsets
from mnemoscope.systems.in_context_bigrams.analyses.onsets import followed

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
"""Event to the measure of a trajectory."""


def learning_order(trajectories: xr.Dataset, *, events: Mapping[str, str] = EVENTS, within: float = 0.0) -> xr.Dataset:
    """When each of some measures sets in, and in which order.

    Args:
        trajectories: Over (seed, step), of runs that differ in the seed only.
        events: Event to the name of its measure.
        within: Onsets that differ by at most this many steps tie; the spacing of the checkpoints, say.

    Returns:
        What `order_of_onsets` gives, and `onset` over (event, seed), the first kept step, NaN: never; `order_share`
        over `distinct_order`: the share of seeds that show each order, the commonest first.

    Raises:
        InputError: There is no seed, or a measure is missing or not finite at some step.
    """
    if "seed" not in trajectories.dims:
        raise InputError("trajectories must be along seed; put one run's along it with expand_dims(seed=[...])")
    onsets = {event: first_step(followed(trajectories, name)) for event, name in events.items()}
    found = order_of_onsets(onsets, within=within)
    counts = Counter(str(order) for order in found.order.values).most_common()
    return found.assign(
        onset=xr.concat(list(onsets.values()), xr.DataArray(list(onsets), dims="event", name="event")),
        order_share=("distinct_order", [count / found.sizes["seed"] for _, count in counts]),
    ).assign_coords(distinct_order=[order for order, _ in counts])
