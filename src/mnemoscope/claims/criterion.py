"""One effect and what it must do: its margin, its direction and its quantifier.

An effect *clears* its margin when it lies strictly beyond it: an effect exactly at the margin clears nothing and fails
nothing. Differences that float32 arithmetic makes count as none.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from mnemoscope.core.errors import InputError, one_of

Quantifier = Literal["most", "every", "exists", "mean", "equivalence"]
"""The share of replicates that the effect needs, or a statement about their mean."""
Direction = Literal["above", "below", "within"]

_TIE = 1e-6
_BOUNDED_UNITS = ("accuracy", "probability", "share")


def subtract_bound(values: Float[np.ndarray, "*shape"], bound: float) -> Float[np.ndarray, "*shape"]:
    """Values minus the bound, exactly 0 where the two are equal up to rounding."""
    distance = values - bound
    return np.where(np.abs(distance) <= _TIE * max(1.0, abs(bound)), 0.0, distance)


def foregone(direction: Direction, margin: float, limits: tuple[float, float]) -> str:
    """Say why a margin decides the same whatever is measured, for effects between `limits`; empty if it does not.

    >>> foregone("above", 1.0, (0.0, 1.0))
    'no effect from 0 to 1 is above 1, so nothing could support the claim'
    """
    low, high = limits
    words = f"{direction} ±{margin:g}" if direction == "within" else f"{direction} {margin:g}"
    possible = f"effect from {low:g} to {high:g} is {words}"
    if direction == "within":
        low, high = (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    none_below, none_above = margin <= low, margin >= high
    if none_below if direction == "above" else none_above:
        return f"every {possible}, so nothing could refute the claim"
    if none_above if direction == "above" else none_below:
        return f"no {possible}, so nothing could support the claim"
    return ""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One effect and what it must do.

    Raises InputError where the margin is not finite, or not positive in the direction `within`, where `mean` or
    `equivalence` has the direction of the other, and where no possible effect could fail, or clear, the margin.

    Attributes:
        name: The effect in the evidence.
        quantifier: Over the replicates. `most`: more than half of them clear the margin; `every`: all do; `exists`:
            one does; `mean`: their mean does; `equivalence`: their mean lies within the margin ("no effect").
        margin: In the unit of the effect.
        direction: Where an effect that clears the margin lies: `above` it, `below` it, or `within` the margin on
            either side of 0.
        bounds: The smallest and the largest effect that is possible. A mean is decided only where they are known. None:
            those of the unit, which are -1 and 1 for accuracies, probabilities and shares; other units have none.

    >>> ms.Criterion(name="recall", quantifier="most", margin=0.9, unit="accuracy").direction
    'above'
    """

    name: str
    quantifier: Quantifier
    margin: float
    direction: Direction = "above"
    unit: str = ""
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        one_of(f"quantifier of {self.name}", self.quantifier, get_args(Quantifier))
        one_of(f"direction of {self.name}", self.direction, get_args(Direction))
        if not math.isfinite(self.margin) or (self.direction == "within" and self.margin <= 0):
            allowed = "a positive number" if self.direction == "within" else "a finite number"
            raise InputError(f"margin of {self.name} must be {allowed}; got {self.margin!r}")
        if self.quantifier == "equivalence" and self.direction != "within":
            raise InputError(f"{self.name}: equivalence needs direction='within'; got {self.direction!r}")
        if self.quantifier == "mean" and self.direction == "within":
            raise InputError(f"{self.name}: a mean within a margin is quantifier='equivalence'; got 'mean'")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise InputError(f"bounds of {self.name} must be the smallest and the largest effect; got {self.bounds}")
        if always := foregone(self.direction, self.margin, self.limits):
            raise InputError(f"margin of {self.name} must lie where an effect can clear it and can fail it: {always}")

    @property
    def limits(self) -> tuple[float, float]:
        """The bounds, those of the unit where none are given, or infinite ones."""
        if self.bounds is not None:
            return self.bounds
        return (-1.0, 1.0) if self.unit.startswith(_BOUNDED_UNITS) else (-math.inf, math.inf)

    def slack(self, effects: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The distances by which effects clear the margin: positive where they do, negative where they fail."""
        match self.direction:
            case "above":
                return subtract_bound(effects, self.margin)
            case "below":
                return -subtract_bound(effects, self.margin)
            case "within":
                return -subtract_bound(np.abs(effects), self.margin)

    @property
    def wording(self) -> str:
        """The criterion in words: above 0.25, within ±0.1."""
        return f"within ±{self.margin:g}" if self.direction == "within" else f"{self.direction} {self.margin:g}"
