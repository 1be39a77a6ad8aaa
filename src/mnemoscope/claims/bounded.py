"""P against a mean of independent values that have bounds, whatever their distribution.

Student's t errs where values saturate: of probabilities near 1 a small sample lacks the rare low ones, so its spread is
too small. No test of the mean of values without bounds both holds and ever decides (Bahadur & Savage 1956): a rare
value that is not in the sample could move the mean anywhere. With bounds there is one that holds.

Gaffke (2005) adds one value at the bound that speaks against the decision, and weighs all n + 1 by gaps between n
uniform numbers. P is the probability that the weighted mean lies on the wrong side of `bound`. For values of 0 and 1
this is the exact binomial tail, and so Clopper and Pearson's interval. That it holds for all other distributions is a
conjecture without a counterexample (Learned-Miller & Thomas 2019); it is below Hoeffding's and Anderson's bounds, which
are proved, and near Student's t where that holds.

The weights are independent exponentials over their sum, so that P is the tail of a sum of weighted exponentials at 0,
here by Lugannani and Rice's saddlepoint (1980), which is within 6 % of the exact tail.
"""

import numpy as np
from jaxtyping import Float
from scipy import stats

Limits = tuple[float, float]
"""The smallest and the largest value that is possible; infinite where there is none."""
_STEPS = 60
_FLAT = 1e-4


def p_mean_above(values: Float[np.ndarray, "row value"], bound: float, limits: Limits) -> Float[np.ndarray, " row"]:
    """Per row, P against "the mean is at most `bound`"; 1 without a lower limit."""
    low = limits[0]
    if not np.isfinite(low):
        return np.ones(len(values))
    if bound < low:
        return np.zeros(len(values))
    weights = np.column_stack([values, np.full(len(values), low)]) - bound
    return _p_sum_below_zero(weights)


def p_mean_below(values: Float[np.ndarray, "row value"], bound: float, limits: Limits) -> Float[np.ndarray, " row"]:
    """Per row, P against "the mean is at least `bound`"; 1 without an upper limit."""
    return p_mean_above(-values, -bound, (-limits[1], -limits[0]))


def limits_within(values: Float[np.ndarray, "*shape"]) -> Limits:
    """The limits that values suggest: 0 to 1, -1 to 1, or a sign that all have; none otherwise.

    >>> limits_within(np.array([0.2, 0.9]))
    (0.0, 1.0)
    """
    low, high = float(values.min()), float(values.max())
    if low >= -1 and high <= 1:
        return (0.0 if low >= 0 else -1.0), 1.0
    return (0.0 if low >= 0 else -np.inf), (0.0 if high <= 0 else np.inf)


def _p_sum_below_zero(weights: Float[np.ndarray, "row value"]) -> Float[np.ndarray, " row"]:
    """P that a sum of exponentials with these weights is 0 or less."""
    low, high = weights.min(1), weights.max(1)
    p = np.where(high <= 0, 1.0, np.where(low >= 0, 0.0, np.nan))
    open_ = np.isnan(p)
    if open_.any():
        p[open_] = _saddlepoint(weights[open_])
    return p


def _saddlepoint(weights: Float[np.ndarray, "row value"]) -> Float[np.ndarray, " row"]:
    """The same where weights of both signs occur."""
    scale = np.abs(weights).max(1, keepdims=True)
    w = weights / scale
    # K(s) = -sum log(1 - s w) is convex between 1 / min w and 1 / max w, so K' has one root there.
    left, right = 1 / w.min(1), 1 / w.max(1)
    for _ in range(_STEPS):
        s = (left + right) / 2
        slope = (w / (1 - s[:, None] * w)).sum(1)
        left, right = np.where(slope < 0, s, left), np.where(slope < 0, right, s)
    s = (left + right) / 2
    rest = 1 - s[:, None] * w
    cumulant, curvature = -np.log(rest).sum(1), ((w / rest) ** 2).sum(1)
    root = np.sign(s) * np.sqrt(np.maximum(-2 * cumulant, 0))
    slope = s * np.sqrt(curvature)
    flat = np.abs(root) < _FLAT  # the two terms cancel where the mean lies at the bound
    with np.errstate(divide="ignore", invalid="ignore"):
        p = stats.norm.cdf(root) + stats.norm.pdf(root) * (1 / root - 1 / slope)
    skewness = 2 * ((w / rest) ** 3).sum(1) / curvature**1.5
    return np.clip(np.where(flat, 0.5 + skewness / (6 * np.sqrt(2 * np.pi)), p), 0.0, 1.0)
