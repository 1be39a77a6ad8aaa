"""A number that is claimed to lie beyond a margin, and the model of which it is claimed.

While a model is on trial, effects are kept and nothing is raised: a seed that does not do what is claimed deviates, and
all seeds are judged together. Otherwise an effect that does not clear its margin is an AssertionError.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from mnemoscope.claims.claim import Criterion, Direction
from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import Subject


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A measured value and the claim about it, `what`, in words.

    The value should lie on the side `direction` of the margin; exactly at the margin is on neither. The unit is empty
    if it has none.
    """

    what: str
    value: float
    margin: float
    direction: Direction = "above"
    unit: str = ""

    @property
    def _part(self) -> Criterion:
        return Criterion(name=self.what, quantifier="most", margin=self.margin, direction=self.direction)

    @property
    def slack(self) -> float:
        """The distance by which it clears the margin."""
        return float(self._part.slack(np.array([self.value]))[0])

    def __str__(self) -> str:
        return f"{self.what} is {self.value:.3g}, not {self._part.wording} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trial:
    """The model on trial, read at the first use, and what was measured on it."""

    read: Callable[[], Subject]
    effects: list[Effect]


_CURRENT: ContextVar[_Trial | None] = ContextVar("on_trial", default=None)


@contextmanager
def on_trial(read: Callable[[], Subject]) -> Iterator[list[Effect]]:
    """Assertions within are about the model of `read`, add their results to the list, and raise nothing about it."""
    trial = _Trial(read=read, effects=[])
    token = _CURRENT.set(trial)
    try:
        yield trial.effects
    finally:
        _CURRENT.reset(token)


def subject_or_current(subject: Subject | None) -> Subject:
    """The subject that is given, else the one on trial; raises InputError where there is neither."""
    if subject is not None:
        return subject
    trial = _CURRENT.get()
    if trial is None:
        raise InputError(
            "subject must be given outside a test marked with @pytest.mark.claim: Subject(model=..., task=..., seed=0)"
        )
    return trial.read()


def claim_effect(
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    within: float | None = None,
    unit: str = "",
    what: str = "the effect",
) -> None:
    """Claim that a number from the test lies beyond a margin that was fixed before.

    Give one of the margins: the number should lie `above` it, `below` it, or `within` it on either side of 0. `unit` is
    that of value and margin; `what` is the number in words. Raises InputError where not exactly one margin is given, or
    the number is NaN; AssertionError where no model is on trial, and the number does not clear the margin.
    """
    __tracebackhide__ = True
    margins: tuple[tuple[Direction, float | None], ...] = (("above", above), ("below", below), ("within", within))
    given: list[tuple[Direction, float]] = [(direction, margin) for direction, margin in margins if margin is not None]
    if len(given) != 1:
        names = ", ".join(direction for direction, _ in given) or "none"
        raise InputError(f"one of above, below and within must be given; got {names}")
    [(direction, margin)] = given
    submit(Effect(what=what, value=float(value), margin=float(margin), direction=direction, unit=unit))


def submit(effect: Effect) -> None:
    """Keep a finite effect of the model on trial; without one, raise AssertionError where it misses its margin."""
    __tracebackhide__ = True
    if not np.isfinite(effect.value):
        raise InputError(f"{effect.what} must be a finite number; got {effect.value}")
    slack, trial = effect.slack, _CURRENT.get()
    if trial is not None:
        trial.effects.append(effect)
    elif slack <= 0:
        raise AssertionError(str(effect))
