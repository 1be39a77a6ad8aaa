"""When measures of a trajectory set in, as claims about the order of learning count it.

A trajectory holds measures of the checkpoints of one run, over `step`. The onset is the first kept step from which a
measure stays past a threshold (`dynamics.onsets.threshold_onset`, not interpolated). A measure that never does counts
as if it did one step after the last: so every difference of onsets is a number, and what never comes is later than what
comes at the last step.

*Shows* which of two measures was past its threshold first, at the resolution of the checkpoints.

*Does not show* when anything began to form, nor that what comes first is a cause of what comes later. Where nothing
sets in, two onsets are equal; a claim that one is earlier is then not met.
"""

import math

import numpy as np
import xarray as xr

from mnemoscope import InputError
from mnemoscope.analyses import HALF, Direction, threshold_onset
from mnemoscope.core import one_of


def onset(trajectory: xr.Dataset | None, name: str, threshold: float = HALF, *, direction: Direction = "rise") -> float:
    """The first kept step from which a measure stays past the threshold; the last step + 1 if there is none.

    Args:
        trajectory: Of one run, as `Subject.trajectory`.
        name: Of the measure.
        threshold: A value equal to it counts as past it.
        direction: Whether past means at least (`rise`) or at most (`fall`).

    Raises:
        InputError: There is no trajectory, it has no such measure, or the measure is not defined for this model.
    """
    values = followed(trajectory, name)
    by = float(threshold_onset(values, threshold, direction=direction).by)
    return float(values.step[-1]) + 1 if math.isnan(by) else by


def followed(trajectory: xr.Dataset | None, name: str) -> xr.DataArray:
    """One measure of a trajectory, over `step`, finite at every step.

    Raises:
        InputError: As `onset`.
    """
    if trajectory is None:
        raise InputError("there is no trajectory of this run; follow it first: mnemoscope follow RUN")
    one_of("a measure of the trajectory", name, [str(known) for known in trajectory.data_vars])
    values = trajectory[name]
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite at every step of the trajectory; the model may have no such layer")
    return values


def at_step(trajectory: xr.Dataset | None, name: str, step: int) -> float:
    """A measure at one kept step.

    Raises:
        InputError: As `onset`, or that step was not kept.
    """
    values = followed(trajectory, name)
    one_of("a kept step", step, values.step.to_numpy().tolist())
    return float(values.sel(step=step))
