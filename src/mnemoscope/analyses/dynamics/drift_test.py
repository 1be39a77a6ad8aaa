"""The test whether a series changes once, or only drifts and wanders.

The statistic is F = (RSS_drift - RSS_change) / RSS_change, the largest over all places and widths of the change (as in
Quandt 1960 and Andrews 1993 for a step). Its null distribution is simulated (a parametric bootstrap): the best drift
plus first-order autoregressive noise, as persistent as what that drift leaves over, corrected for the bias
(2 + 4 r) / n that this estimate has beside a fitted trend (van Giersbergen 2005). Training curves are not independent
noise around a mean: shuffling them would find a change in every slow wander.

A small p says that one sigmoid fits better than any drift that is bent one way only, with such noise. It does not say
that there is one change only, or that the change is sudden.

The candidate shapes of a change are sigmoids, 1 / (1 + exp(-(u - m) / s)): a sudden step in the limit of a small s.
Those of drifts are straight lines and exponentials exp(c u): bent one way only, without a turning point of their slope.
A level and a height are fitted to each, so that a shape counts only up to both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter
from scipy.special import expit
from scipy.stats import monte_carlo_test

Rows = Float[np.ndarray, "*rows step"]

N_SCALES = 24
"""Widths of changes."""
N_RATES = 16
"""Curvatures of drifts, bent either way."""
TEN_TO_NINETY = float(2 * np.log(9))
"""From a tenth to nine tenths of a sigmoid, in units of s."""
RESOLUTION = 1e-7
"""Relative rounding of the values (float32): residuals below it are rounding."""


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """All candidates along one axis, each with mean zero and length one."""

    u: Float[np.ndarray, " step"]
    mids: Float[np.ndarray, " mid"]
    scales: Float[np.ndarray, " scale"]
    changes: Float[np.ndarray, "mid scale step"]
    rates: Float[np.ndarray, " drift"]
    drifts: Float[np.ndarray, "drift step"]


def candidates(u: Float[np.ndarray, " step"]) -> Shapes:
    """Changes with at least two points on either side of their middle, from a sudden step to the whole length."""
    gaps, length = np.diff(u), u[-1] - u[0]
    per_gap = 3 if len(u) <= 200 else 1
    mids = (u[1:-2, None] + (np.arange(per_gap) + 0.5) / per_gap * gaps[1:-1, None]).ravel()
    scales = np.geomspace(gaps.min() / 20, length, N_SCALES) / TEN_TO_NINETY
    bent = np.geomspace(0.1, len(u), N_RATES)
    rates = np.concatenate((-bent[::-1], [0.0], bent))
    return Shapes(
        u=u,
        mids=mids,
        scales=scales,
        changes=_unit(expit((u - mids[:, None, None]) / scales[:, None])),
        rates=rates,
        drifts=drift_shapes(u, rates),
    )


def drift_shapes(u: Float[np.ndarray, " step"], rates: Float[np.ndarray, " drift"]) -> Float[np.ndarray, "drift step"]:
    """Exponentials exp(c x), where x runs from 0 to 1, of the given rates c; a straight line for c = 0."""
    x, c = (u - u[0]) / (u[-1] - u[0]), np.where(rates == 0, 1, rates)[:, None]
    return _unit(np.where(rates[:, None] == 0, x, np.expm1(c * x) / c))


def left_over(shapes: Float[np.ndarray, "*shapes step"], values: Rows) -> Float[np.ndarray, "*rows"]:
    """Residual sum of squares of the best shape, at least that of rounding."""
    centred = values - values.mean(-1, keepdims=True)
    explained = np.square(centred @ shapes.reshape(-1, shapes.shape[-1]).T).max(-1)
    return np.asarray(np.maximum(np.square(centred).sum(-1) - explained, rounding(values)))


def rounding(values: Rows) -> Float[np.ndarray, "*rows"]:
    """Residual sum of squares of rounding alone."""
    return np.asarray(values.shape[-1] * np.square(RESOLUTION * np.abs(values).max(-1)))


def _unit(shapes: Rows) -> Rows:
    centred = shapes - shapes.mean(-1, keepdims=True)
    return centred / np.linalg.norm(centred, axis=-1, keepdims=True)


STRONGEST = 0.95
"""The strongest autocorrelation that is reckoned with."""


def persistence(residuals: Float[np.ndarray, " step"]) -> float:
    """Autocorrelation of neighbours, from 0 to the strongest that is reckoned with."""
    squares = float(residuals @ residuals)
    return float(np.clip(residuals[1:] @ residuals[:-1] / squares, 0, STRONGEST)) if squares else 0.0


def best_drift(shapes: Shapes, values: Float[np.ndarray, " step"]) -> Float[np.ndarray, " step"]:
    """The shape of the drift that explains most, off the grid."""
    centred, rates = values - values.mean(), shapes.rates
    near = int(np.square(shapes.drifts @ centred).argmax())
    if rates[near] == 0:
        return shapes.drifts[near]

    def left(rate: float) -> float:
        return -float(np.square(drift_shapes(shapes.u, np.array([rate])) @ centred).item()) / float(centred @ centred)

    bounds = rates[max(near - 1, 0)], rates[min(near + 1, len(rates) - 1)]
    options = {"xatol": 1e-6 * abs(rates[near])}
    best: Any = minimize_scalar(left, bounds=bounds, method="bounded", options=options)
    return drift_shapes(shapes.u, np.array([best.x]))[0]


def drift_p(shapes: Shapes, values: Float[np.ndarray, " step"], *, n_draws: int, rng: np.random.Generator) -> float:
    """The p of the best drift as the null hypothesis, at least 1 / (n_draws + 1)."""
    drift = best_drift(shapes, values)
    drifts = np.append(shapes.drifts, drift[None], 0)
    centred = values - values.mean()
    trend = values.mean() + (drift @ centred) * drift
    residuals, n = values - trend, len(values)
    r = persistence(residuals)
    r = min(r + (2 + 4 * r) / n, STRONGEST)
    spread = np.sqrt(max(float(residuals @ residuals), float(rounding(values))) / n)

    def draw(size: tuple[int, ...]) -> np.ndarray:
        shocks = rng.standard_normal(size)
        shocks[..., 1:] *= np.sqrt(1 - r**2)  # the first one has the spread that the noise settles at
        return trend + spread * lfilter([1], [1, -r], shocks, axis=-1)

    def statistic(rows: np.ndarray, axis: int = -1) -> np.ndarray:
        change = left_over(shapes.changes, rows)
        return np.asarray((left_over(drifts, rows) - change) / change)

    test = monte_carlo_test(values, draw, statistic, vectorized=True, n_resamples=n_draws, alternative="greater")
    return float(test.pvalue)
