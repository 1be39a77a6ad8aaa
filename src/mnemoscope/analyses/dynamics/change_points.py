"""The test whether a measure changes once in training, where, and how suddenly.

The change is the least-squares sigmoid a + (b - a) / (1 + exp(-(u - m) / s)) along u, which is the step or
log(1 + step). Over a grid of m and s the levels have a closed form; the best candidate is then refined. It is compared
with a drift that is bent one way only, with noise as persistent as what the drift leaves over (`dynamics.drift_test`).
Where the drift would do, or where the change is not seen whole, there is no position: NaN, and `status` says why.

The intervals are those of the profile likelihood: all m (all widths) at which the best sigmoid leaves a residual sum of
squares of at most RSS (1 + v F(1, n - 4) / (n - 4)) over, where v = (1 + r) / (1 - r) allows for residuals with
autocorrelation r (Bayley and Hammersley 1946), and the next candidate on either side.

*Shows* where one change of any height lies and how wide it is, from a tenth to nine tenths of it.

*Does not show* that there is only one: of two changes it gives one wide one, or none where stairs look like a drift.
A small p does not say that the change is sudden: read `relative_width`. The intervals hold for one sigmoid with
first-order autoregressive noise, of one run: other seeds vary more. What is shorter than the gap between two steps of
the series looks sudden.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy.ndimage import binary_dilation
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from scipy.stats import f as f_distribution

from mnemoscope.analyses.dynamics.drift_test import (
    TEN_TO_NINETY,
    Shapes,
    best_drift,
    candidates,
    drift_p,
    left_over,
    persistence,
    rounding,
)
from mnemoscope.analyses.dynamics.onsets import Axis, series
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.seeding import stream_seed

Series = Float[np.ndarray, " step"]
Array = Float[np.ndarray, " n"]

N_PARAMETERS = 4
"""The parameters of the change: two levels, place and width."""


def fit_change(
    steps: Series, values: Series, *, log: bool, confidence: float, n_draws: int, rng: np.random.Generator
) -> tuple[dict[str, float], bool]:
    """The best change of a series, with its intervals and its test.

    `steps` ascend, at least eight of them; memory grows with the square of their number. `values` are finite and not
    all equal. With `log` the sigmoid is one along log(1 + step). `rng` draws the `n_draws` simulated series for p.

    Returns the figures of `change_point`, and whether the change is seen whole: from a tenth to nine tenths inside the
    series, with two points on either side of its half.
    """
    back = np.expm1 if log else np.positive
    shapes = candidates(np.log1p(steps) if log else steps)
    mid, scale = _refined(shapes, values)
    sigmoid = expit((shapes.u - mid) / scale)
    height, before = np.polyfit(sigmoid, values, 1)
    residuals = values - before - height * sigmoid
    rss = max(float(residuals @ residuals), float(rounding(values)))
    total = float(np.square(values - values.mean()).sum())
    free, r = len(values) - N_PARAMETERS, persistence(residuals)
    bound = float(rss / total * (1 + (1 + r) / (1 - r) * f_distribution.ppf(confidence, 1, free) / free))
    start, end = mid - scale * TEN_TO_NINETY / 2, mid + scale * TEN_TO_NINETY / 2
    u, slack = shapes.u, 1e-3 * np.diff(shapes.u).min()
    position, width = float(back(mid)), float(back(end) - back(start))
    figures = {
        "start": float(back(start)),
        "position": position,
        "end": float(back(end)),
        **_intervals(shapes, values, (mid, scale), bound, back),
        "before": float(before),
        "after": float(before + height),
        "width": width,
        "relative_width": width / position,
        "p": drift_p(shapes, values, n_draws=n_draws, rng=rng),
        "explained": 1 - rss / total,
        "explained_by_drift": 1 - float(left_over(best_drift(shapes, values)[None], values)) / total,
    }
    return figures, bool(u[0] <= start and end <= u[-1] and u[1] + slack < mid < u[-2] - slack)


def _remaining(u: Series, values: Series) -> Callable[[float, float], float]:
    """The share of the variance that a change leaves over, as a function of its middle and the log of its scale."""
    centred = values - values.mean()
    total = float(centred @ centred)

    def remaining(mid: float, log_scale: float) -> float:
        sigmoid = expit((u - mid) / np.exp(log_scale))
        sigmoid = sigmoid - sigmoid.mean()
        return 1 - float(np.square(sigmoid @ centred) / (sigmoid @ sigmoid)) / total

    return remaining


def _explained(shapes: Shapes, values: Series) -> Float[np.ndarray, "mid scale"]:
    """Sum of squares that every candidate explains."""
    return np.square(shapes.changes @ (values - values.mean()))


def _refined(shapes: Shapes, values: Series) -> tuple[float, float]:
    """Middle and scale of the best change off the grid; never worse than the best candidate."""
    explained = _explained(shapes, values)
    row, column = np.unravel_index(explained.argmax(), explained.shape)
    remaining, scales = _remaining(shapes.u, values), np.log(shapes.scales)
    start = np.array([shapes.mids[row], scales[column]])
    towards = np.sign([shapes.u.mean() - start[0], scales.mean() - start[1]]) + (start == 0)
    cell = np.diag(towards * [np.diff(shapes.u).min(), scales[1] - scales[0]])
    found = minimize(
        lambda place: remaining(*place),
        start,
        method="Nelder-Mead",
        bounds=[(shapes.u[1], shapes.u[-2]), (scales[0], scales[-1])],
        options={"initial_simplex": [start, *(start + cell)], "xatol": 1e-4, "fatol": 1e-10},
    )
    return float(found.x[0]), float(np.exp(found.x[1]))


def _intervals(
    shapes: Shapes, values: Series, best: tuple[float, float], bound: float, back: np.ufunc
) -> dict[str, float]:
    """Ends of the intervals; one that reaches the outermost candidate goes on to the end of what can be seen."""
    mids, scales = shapes.mids, np.log(shapes.scales)
    explained, remaining = _explained(shapes, values), _remaining(shapes.u, values)
    _, left = _least(remaining, mids, scales, explained.argmax(1))
    kept_mids = _kept(left <= bound, np.abs(mids - best[0]))
    middles, left = _least(lambda scale, mid: remaining(mid, scale), scales, mids, explained.argmax(0))
    kept_scales = _kept(left <= bound, np.abs(scales - np.log(best[1])))
    half = shapes.scales * TEN_TO_NINETY / 2
    widths, places = (back(middles + half) - back(middles - half))[kept_scales], back(mids[kept_mids])
    return {
        "position_low": float(back(shapes.u[0]) if kept_mids[0] else places[0]),
        "position_high": float(back(shapes.u[-1]) if kept_mids[-1] else places[-1]),
        "width_low": 0.0 if kept_scales[0] else float(widths.min()),
        "width_high": float("inf") if kept_scales[-1] else float(widths.max()),
    }


def _least(
    function: Callable[[float, float], float],
    fixed: Array,
    grid: Float[np.ndarray, " grid"],
    near: Int[np.ndarray, " n"],
) -> tuple[Array, Array]:
    """For each value of the first argument, where around a point of the grid the function is least, and how much."""
    found: list[Any] = []
    for value, low, high in zip(fixed, near - 1, near + 1, strict=True):
        bounds = grid[max(low, 0)], grid[min(high, len(grid) - 1)]
        options = {"xatol": 1e-2 * (bounds[1] - bounds[0])}
        found.append(minimize_scalar(partial(function, value), bounds=bounds, method="bounded", options=options))
    return np.array([least.x for least in found]), np.array([least.fun for least in found])


def _kept(good: Bool[np.ndarray, " n"], distance: Array) -> Bool[np.ndarray, " n"]:
    """The good candidates and the one nearest to the best change, and their neighbours."""
    return binary_dilation(good | (distance == distance.min()))


MOST_STEPS = 500
"""The candidates of a change take memory in the square of this."""
_ALWAYS = ("p", "explained", "explained_by_drift")
_WHERE_THERE_IS_ONE = (
    *("start", "position", "end", "position_low", "position_high", "width_low", "width_high"),
    *("before", "after", "width", "relative_width"),
)


def change_point(
    values: xr.DataArray,
    *,
    axis: Axis = "linear",
    alpha: float = 0.01,
    confidence: float = 0.95,
    n_draws: int = 499,
    seed: int = 0,
) -> xr.Dataset:
    """The best sigmoid change of a measure along training.

    Args:
        values: Over `step` and any other dimensions, such as seed and skill; from 8 to 500 steps.
        axis: Whether the sigmoid is one along the step, or along log(1 + step), as suits checkpoints that are evenly
            spaced in the log.
        alpha: There is a change where p is at most this. At 0.01, on 300 simulated series of 17 or 40 steps each, flat,
            straight, saturating, logarithmic or a power: at most 0.01 called a change by mistake with independent
            noise, 0.02 with an autocorrelation of 0.5 and 0.04 with one of 0.8.
        confidence: Of the intervals.
        n_draws: Simulated series for p, which is at least 1 / (n_draws + 1).
        seed: They come from this seed's stream `change point`, the same ones for every series.

    Returns:
        Over the other dimensions, in steps: `position` (half of the change), `position_low`, `position_high`; `start`
        and `end` (a tenth and nine tenths of it); `width` from start to end, `width_low` (0: a sudden step is not
        excluded), `width_high` (infinite: a change as long as the series is not excluded); `relative_width`, which is
        width / position; `before`, `after`: the levels, in the unit of `values`. All of them NaN unless `status` is
        `change`. It may also be `no change` (p is above alpha), `not seen whole` (start, end and two steps of the
        series on either side of the position do not lie in the series) or `undefined` (a value is missing or
        infinite). Unless undefined: `p`, `explained` and `explained_by_drift` (shares of the variance).

    Raises:
        InputError: There is no ascending coordinate `step`, or an argument is outside its range.
    """
    one_of("axis", axis, get_args(Axis))
    in_range("confidence", confidence, 0.5, 0.999)
    in_range("n_draws", n_draws, 19, 1e6)
    in_range("alpha", alpha, 1 / (n_draws + 1), 0.5)
    found = series(values, at_least=8)
    if (n := len(found.steps)) > MOST_STEPS:
        way = f"thin them: values.isel(step=slice(None, None, {-(-n // MOST_STEPS)}))"
        raise InputError(f"a change point needs at most {MOST_STEPS} steps; got {n}; {way}")

    def figures(row: Float[np.ndarray, " step"]) -> dict[str, float | str]:
        if np.ptp(row) == 0:
            return _refused("no change", p=1.0, explained=0.0, explained_by_drift=0.0)
        rng = np.random.default_rng(stream_seed(seed, "change point"))
        change, whole = fit_change(found.steps, row, log=axis == "log", confidence=confidence, n_draws=n_draws, rng=rng)
        if change["p"] <= alpha and whole:
            return {**change, "status": "change"}
        return _refused("not seen whole" if change["p"] <= alpha else "no change", **{n: change[n] for n in _ALWAYS})

    rows = [
        figures(row) if fine else _refused("undefined") for row, fine in zip(found.rows, found.defined, strict=True)
    ]
    return found.labelled(rows).assign_attrs(
        definition=f"least-squares sigmoid along {'step' if axis == 'linear' else 'log(1 + step)'}, against a drift",
        unit="steps of training",
        alpha=alpha,
        confidence=confidence,
        n_draws=n_draws,
        n_steps=n,
    )


def _refused(status: str, **known: float) -> dict[str, float | str]:
    return {**dict.fromkeys((*_WHERE_THERE_IS_ONE, *_ALWAYS), np.nan), **known, "status": status}
