"""When in training a measure sets in: the first step from which it stays past a threshold.

The threshold is fixed before looking. The onset needs no model of the curve (`dynamics.change_points` has one), and it
is known no better than between the two steps (checkpoints or lines of metrics) around the crossing; between them the
value is interpolated.

A series that never stays past the threshold is censored: its onset is later than its last step, or never. It is
counted, never dropped silently. An onset in one run is no evidence about others: the seed is the unit. What is meant to
set in may be there before the measure moves, and a sharp measure (accuracy) can jump where a smooth one
(log-probability) drifts: look at both.
"""

from typing import Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.dynamics.series import series
from mnemoscope.core.errors import in_range, one_of

Axis = Literal["linear", "log"]
Direction = Literal["rise", "fall"]

HALF = 0.5
"""Where a measure between 0 and 1 sets in."""


def threshold_onset(
    values: xr.DataArray,
    threshold: float,
    *,
    direction: Direction = "rise",
    hold: int | None = None,
    axis: Axis = "linear",
) -> xr.Dataset:
    """The first step from which a measure stays past a threshold.

    Args:
        values: Over `step` and any other dimensions, such as seed and skill.
        threshold: A value equal to it counts as past it.
        direction: Whether past means at least (`rise`) or at most (`fall`).
        hold: For how many steps of the series in a row the value has to stay past it; none: for all that follow.
        axis: Interpolation between the two steps around the crossing: straight in the step, or in log(1 + step).

    Returns:
        Over the other dimensions: `onset` (NaN where there is none), `after` (the last step of the series before it),
        `by` (the first at which the value stays past), in steps, and `status`: `reached`; `from the start` (past it at
        the first step already: the onset is that step at most); `never` (within the series); `undefined` (a value is
        missing or infinite).

    Raises:
        InputError: There is no ascending coordinate `step`, or an argument is outside its range.
    """
    one_of("direction", direction, get_args(Direction))
    one_of("axis", axis, get_args(Axis))
    in_range("threshold", threshold, -np.finfo(float).max, np.finfo(float).max)
    found = series(values, at_least=1)
    in_range("hold", 1 if hold is None else hold, 1, len(found.steps))
    sign = 1 if direction == "rise" else -1
    rows = [
        _crossing(found.steps, sign * row - sign * threshold, hold, axis) if defined else _none("undefined")
        for row, defined in zip(found.rows, found.defined, strict=True)
    ]
    past = "at least" if direction == "rise" else "at most"
    staying = "all that follow" if hold is None else f"{hold} in a row"
    return found.labelled(rows).assign_attrs(
        definition=f"first step from which the value is {past} {threshold:g}, for {staying}",
        interpolation="straight in the step" if axis == "linear" else "straight in log(1 + step)",
        unit="steps of training",
        n_steps=len(found.steps),
    )


def _none(status: str) -> dict[str, float | str]:
    return {"onset": np.nan, "after": np.nan, "by": np.nan, "status": status}


def _crossing(
    steps: Float[np.ndarray, " step"], height: Float[np.ndarray, " step"], hold: int | None, axis: Axis
) -> dict[str, float | str]:
    """The onset of a series of heights above the threshold."""
    stays = _stays(height >= 0, hold)
    if not stays.any():
        return _none("never")
    first = int(stays.argmax())
    if first == 0:
        return {"onset": steps[0], "after": np.nan, "by": steps[0], "status": "from the start"}
    pair = slice(first - 1, first + 1)
    u = np.log1p(steps[pair]) if axis == "log" else steps[pair]
    crossed = np.interp(0, height[pair], u)
    onset = np.expm1(crossed) if axis == "log" else crossed
    return {"onset": float(onset), "after": steps[first - 1], "by": steps[first], "status": "reached"}


def _stays(past: Bool[np.ndarray, " step"], hold: int | None) -> Bool[np.ndarray, " step"]:
    """Whether the value is past the threshold from here on, or for the next `hold` steps."""
    if hold is None:
        return np.logical_and.accumulate(past[::-1])[::-1]
    long_enough = np.lib.stride_tricks.sliding_window_view(past, hold).all(1)
    return np.append(long_enough, np.zeros(hold - 1, bool))


def falls(name: str) -> bool:
    """Whether a measure of a trajectory falls when something is learned: a loss or a divergence."""
    return name.startswith("loss_") or name.endswith("kl")


def first_step(values: xr.DataArray) -> xr.DataArray:
    """The onset of one measure in every seed; NaN: never.

    Args:
        values: Over (seed, step); a measure that `falls` sets in by falling half of its way.
    """
    if not falls(str(values.name)):
        return threshold_onset(values, HALF).by
    middle = (values.isel(step=0) + values.min("step")) / 2
    return threshold_onset(values - middle, 0.0, direction="fall").by
