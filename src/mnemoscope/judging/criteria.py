"""What a claim asks of numbers: of an effect, of a replicate before it counts, and of the instrument.

All three are fixed before the first run. An effect *clears* its margin when it lies strictly beyond it: an effect
exactly at the margin clears nothing and fails nothing. Differences that float32 arithmetic makes count as none.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.subject import Subject

Quantifier = Literal["most", "every", "exists", "mean", "equivalence"]
Direction = Literal["above", "below", "within"]

Measured = Mapping[str, float | Float[np.ndarray, " prompt"]]
"""What a measure says of one replicate, by name: a number, or one number a prompt."""

_TIE = 1e-6


def beyond(values: Float[np.ndarray, "*shape"], bound: float) -> Float[np.ndarray, "*shape"]:
    """Values minus the bound, exactly 0 where the two are equal up to rounding."""
    distance = values - bound
    return np.where(np.abs(distance) <= _TIE * max(1.0, abs(bound)), 0.0, distance)


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One effect and what it must do.

    Attributes:
        name: Of the effect in the evidence.
        quantifier: Over the replicates. `most`: more than half of them clear the margin; `every`: all do; `exists`:
            one does; `mean`: their mean does; `equivalence`: their mean lies within the margin ("no effect").
        margin: In the unit of the effect.
        direction: Where an effect that clears the margin lies: `above` it, `below` it, or `within` the margin on
            either side of 0.
        unit: Of the effect; shown.

    Raises:
        InputError: The margin is not finite, or not positive where the direction is `within`; `mean` and
            `equivalence` are told apart by the direction and have the wrong one.
    """

    name: str
    quantifier: Quantifier
    margin: float
    direction: Direction = "above"
    unit: str = ""

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

    def slack(self, effects: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """By how much effects clear the margin: positive where they do, negative where they fail, 0 at the margin."""
        match self.direction:
            case "above":
                return beyond(effects, self.margin)
            case "below":
                return -beyond(effects, self.margin)
            case "within":
                return -beyond(np.abs(effects), self.margin)

    @property
    def wording(self) -> str:
        """The criterion in words: above 0.25, within ±0.1."""
        return f"within ±{self.margin:g}" if self.direction == "within" else f"{self.direction} {self.margin:g}"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Which replicates a claim speaks of: those whose value lies in a closed interval.

    A claim about a mechanism speaks of models that learned the task. A claim about learning has no gate.

    Attributes:
        statement: What passing means, to follow "which": "answers recall on unseen mappings in 99 % of prompts".
        at_least: Lowest value that passes.
        at_most: Highest value that passes.

    Raises:
        InputError: No bound is given, or no value could pass.
    """

    statement: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def __post_init__(self) -> None:
        bounded = self.at_least > -math.inf or self.at_most < math.inf
        if not (bounded and self.at_least <= self.at_most):
            given = f"at_least={self.at_least:g}, at_most={self.at_most:g}"
            raise InputError(f"gate must have a bound that some value meets; got {given}; give at_least or at_most")

    def passes(self, values: Any) -> Bool[np.ndarray, " replicate"]:
        """Whether each value passes; NaN does not."""
        values = np.asarray(values)
        return (values >= self.at_least) & (values <= self.at_most)


@dataclass(frozen=True, kw_only=True)
class Control:
    """A test of the instrument: the same measurement where the answer is known.

    Attributes:
        name: Of its effects in the evidence.
        kind: `positive`: something is planted, and its effects must meet the claim's criteria; `negative`: nothing is
            there, and they must not.
        tolerated: Share of the control's replicates that may do otherwise.
        plant: From the number of a case to what stands in the place of the claim's configurations, by their names:
            models to be measured like all others, or, for a comparison of configurations, what was measured on each.
            None: the effects are measured by whoever gives the evidence.
        n: How many cases are planted.

    Raises:
        InputError: Another kind, no case, or half of the replicates or more may do otherwise.
    """

    name: str
    kind: Literal["positive", "negative"]
    tolerated: float = 0.0
    plant: Callable[[int], Mapping[str, Subject] | Mapping[str, Measured]] | None = None
    n: int = 4

    def __post_init__(self) -> None:
        in_range(f"n of control {self.name}", self.n, 1, math.inf)
        one_of(f"kind of control {self.name}", self.kind, ("positive", "negative"))
        in_range(f"tolerated of control {self.name}", self.tolerated, 0, 0.49)
