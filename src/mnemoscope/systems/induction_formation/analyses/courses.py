"""The course of a loss: when it changes, and how much of the way there is a plateau.

Only the fall from log 2 counts: what is above is cut off. *Change*: the step from which the loss stays at half of log 2
or below, interpolated between logged steps. *Plateau*: a family of two numbers is fitted to the course by least
squares,

    loss(t) = log 2                               for t up to d
              log 2 exp(-(t - d) / w)             after that,

with a change point d and a width w. A smooth course has d = 0, the exponential fall of a loss that is learned at one
rate. The plateau's share is d / (d + w log 2), of the way to half the loss: 0 if it falls from the start, near 1 if it
falls at once after a long wait. `gain` says how much of the squared error that is left with d = 0 the change point
takes away.

A loss that starts above log 2 first falls to it, which the cut makes a wait. With `near` the course counts from its
first loss within that share of log 2, and the steps before do not.

A course that ends before it has fallen by half has its change at twice its last step, a number for comparisons.
"""

import math

import numpy as np
import xarray as xr

from mnemoscope.analyses import threshold_onset

PLATEAU = math.log(2)
NEVER = 2.0
"""Times the last step at which a change counts that did not come."""
_N_WIDTHS = 60


def change(loss: xr.DataArray, *, level: float = 0.5) -> float:
    """The step from which the loss stays at `level` times log 2, or below, interpolated between logged steps."""
    onset = float(threshold_onset(loss, level * PLATEAU, direction="fall").onset)
    return NEVER * float(loss.step[-1]) if math.isnan(onset) else onset


def plateau(loss: xr.DataArray, *, near: float | None = None) -> dict[str, float]:
    """`share` of the plateau, the change point `delay` and the `width` in steps, and `gain`.

    The course is cut at twice its change, so that what comes long after does not count. With `near` it starts at the
    first loss of at most (1 + near) log 2, or at the last step where there is none.
    """
    if near is not None:
        reached = loss.step.where(loss <= (1 + near) * PLATEAU).min().fillna(loss.step[-1])
        loss = loss.sel(step=loss.step >= reached)
        loss = loss.assign_coords(step=loss.step - reached)
    end = 2 * change(loss)
    kept = loss.sel(step=loss.step <= end)
    steps, values = kept.step.values.astype(float), np.minimum(kept.values, PLATEAU)
    if len(steps) < 3:
        return {"share": 0.0, "delay": 0.0, "width": 0.0, "gain": 0.0}
    widths = np.geomspace(steps[1] / 2, 4 * steps[-1], _N_WIDTHS)
    errors = np.stack([_errors(steps, values, delay, widths) for delay in steps[:-1]])
    at, width = np.unravel_index(errors.argmin(), errors.shape)
    delay, width = float(steps[at]), float(widths[width])
    smooth, best = float(errors[0].min()), float(errors.min())
    return {
        "share": delay / (delay + width * math.log(2)),
        "delay": delay,
        "width": width,
        "gain": 0.0 if smooth < 1e-12 else 1 - best / smooth,
    }


def _errors(steps: np.ndarray, values: np.ndarray, delay: float, widths: np.ndarray) -> np.ndarray:
    """The squared error of every width, with the change point at `delay`."""
    fitted = PLATEAU * np.exp(-(steps - delay).clip(min=0) / widths[:, None])
    return ((values - fitted) ** 2).sum(1)
