"""When measures of a trajectory set in, as rows of text.

Of a loss, or a divergence, that is the first kept step from which it has fallen half of the way from its first to its
smallest value and stays there; of any other measure the first from which it stays at one half or more.
"""

import numpy as np
import xarray as xr

from mnemoscope.analyses.dynamics.onsets import HALF, falls, first_step
from mnemoscope.viz.tables import spread

ONSET_HEADER = ("measure", "sets in at", "onset, step", "in seeds", "at the end")


def onset_rows(trajectory: xr.Dataset) -> list[list[str]]:
    """One row per measure that the models have: onset (mean and range over the seeds in which it sets in), and the last
    value.

    Args:
        trajectory: Over (seed, step).
    """
    rows = []
    for name, values in trajectory.data_vars.items():
        if not np.isfinite(values).any():
            continue  # models without such a layer
        onsets = first_step(values).values
        reached = xr.DataArray(onsets[np.isfinite(onsets)], dims="seed")
        rows.append(
            [
                str(name).replace("_", " "),
                "half-way down" if falls(str(name)) else f"{HALF:g}",
                spread(reached, ".0f") if reached.size else "never",
                f"{reached.size}/{len(onsets)}",
                spread(values.isel(step=-1), ".3f"),
            ]
        )
    return rows
