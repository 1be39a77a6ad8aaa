"""When measures of a trajectory set in, as rows of text.

Of a loss, or a divergence, that is the first kept step from which it has fallen half of the way from its first to its
smallest value and stays there; of any other measure the first from which it stays at one half or more.
"""

import numpy as np
import xarray as xr

from mnemoscope.analyses.dynamics.onsets import threshold_onset
from mnemoscope.viz.tables import spread

ONSET_HEADER = ("measure", "sets in at", "onset, step", "in seeds", "at the end")
HALF = 0.5


def onset_rows(trajectory: xr.Dataset) -> list[list[str]]:
    """A row a measure that the models have: onset (mean and range over the seeds in which it sets in), and the last
    value.

    Args:
        trajectory: Over (seed, step).
    """
    rows = []
    for name, values in trajectory.data_vars.items():
        if not np.isfinite(values).any():
            continue  # models without such a layer
        falls = str(name).startswith("loss") or str(name).endswith("kl")
        onsets = np.array([_onset(values.isel(seed=i), falls) for i in range(values.sizes["seed"])])
        reached = xr.DataArray(onsets[np.isfinite(onsets)], dims="seed")
        rows.append(
            [
                str(name).replace("_", " "),
                "half-way down" if falls else f"{HALF:g}",
                spread(reached, ".0f") if reached.size else "never",
                f"{reached.size}/{len(onsets)}",
                spread(values.isel(step=-1), ".3f"),
            ]
        )
    return rows


def _onset(values: xr.DataArray, falls: bool) -> float:
    threshold = float(values[0] + values.min()) / 2 if falls else HALF
    if not np.isfinite(threshold):
        return np.nan
    return float(threshold_onset(values, threshold, direction="fall" if falls else "rise").by)
