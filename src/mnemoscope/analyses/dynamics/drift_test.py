"""Whether a series changes once, or only drifts and wanders.

The statistic is F = (RSS_drift - RSS_change) / RSS_change, the largest over all places and widths of the change (as in
Quandt 1960 and Andrews 1993 for a step). Its null distribution is simulated (a parametric bootstrap): the best drift
plus first-order autoregressive noise, as persistent as what that drift leaves over, corrected for the bias
(2 + 4 r) / n that this estimate has beside a fitted trend (van Giersbergen 2005). Training curves are not independent
noise around a mean: shuffling them would find a change in every slow wander.

A small p says that one sigmoid fits better than any drift that is bent one way only, with such noise. It does not say
that there is one change only, or that the change is sudden.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter
from scipy.stats import monte_carlo_test

from mnemoscope.analyses.dynamics.shapes import Shapes, drift_shapes, left_over, rounding

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
