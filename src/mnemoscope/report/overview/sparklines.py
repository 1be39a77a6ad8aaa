"""Small learning curves as inline SVG, a kilobyte each: a page shows hundreds of them at once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 100, 32
POINTS = 48
"""Most points of a line."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The axes of a curve; curves of one column share the vertical axis."""

    n_steps: int
    low: float
    high: float

    def place(self, step: float, value: float) -> str:
        """A point, in pixels from the upper left corner."""
        height = (value - self.low) / ((self.high - self.low) or 1)
        return f"{WIDTH * step / max(self.n_steps, 1):.1f},{1 + (HEIGHT - 2) * (1 - height):.1f}"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Values of one measure at some steps, of one run or several."""

    colour: str
    steps: Sequence[Sequence[float]]
    """Steps of every run."""
    values: Sequence[Sequence[float]]
    """Values of every run, NaN where there is none."""
    stays: Sequence[bool]
    """True for runs that keep their last value, because training has ended."""


def sparkline(curves: Sequence[Curve], axes: Axes, title: str) -> str:
    """Lines from the bottom to the top; of several runs the mean so far, in a band from the smallest to the largest."""
    shapes = "".join(_shapes(curve, axes) for curve in curves)
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="spark" role="img" {size}><title>{escape(title)}</title>{shapes}</svg>' if shapes else ""


def axes_of(progress: Sequence[Mapping[str, Sequence[float]]], measures: Sequence[str], n_steps: int) -> Axes:
    """Axes that hold all finite values of these measures."""
    values = [v for each in progress for name in measures for v in each.get(name, ()) if math.isfinite(v)]
    return Axes(n_steps=n_steps, low=min(values, default=0.0), high=max(values, default=1.0))


def _shapes(curve: Curve, axes: Axes) -> str:
    steps = np.unique(np.concatenate([np.asarray(each, float) for each in curve.steps]))
    if not len(steps):
        return ""
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(POINTS, len(steps))).round().astype(int))]
    rows = np.array([_at(chosen, *run) for run in zip(curve.steps, curve.values, curve.stays, strict=True) if run[0]])
    known = np.isfinite(rows).any(0)
    chosen, rows = chosen[known], np.where(np.isfinite(rows), rows, np.nan)[:, known]
    if not len(chosen):
        return ""
    points = " ".join(map(axes.place, chosen, np.nanmean(rows, 0)))
    line = f'<polyline points="{points}" stroke="{curve.colour}"/>'
    if len(rows) < 2:
        return line
    above = list(map(axes.place, chosen, np.nanmax(rows, 0)))
    below = list(map(axes.place, chosen, np.nanmin(rows, 0)))
    return f'<polygon points="{" ".join([*above, *reversed(below)])}" fill="{curve.colour}"/>{line}'


def _at(chosen: np.ndarray, steps: Sequence[float], values: Sequence[float], stays: bool) -> np.ndarray:
    """The last value up to every chosen step; NaN behind the end of a run that may go on."""
    place = np.searchsorted(np.asarray(steps, float), chosen, side="right") - 1
    found = np.where(place >= 0, np.asarray(values, float)[place], np.nan)
    return found if stays else np.where(chosen <= steps[-1], found, np.nan)
