"""Candidate shapes of a series along one axis, and how much of it the best of them explains.

Changes are sigmoids, 1 / (1 + exp(-(u - m) / s)): a sudden step in the limit of a small s. Drifts are straight lines
and exponentials exp(c u): bent one way only, without a turning point of their slope. A level and a height are fitted
to each, so that a shape counts only up to both.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit

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
