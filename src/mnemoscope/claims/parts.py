"""Short forms from which claims are put together: a criterion over most replicates, and controls of an open kind.

What is planted often has to meet the criteria of one claim and must not meet those of its rival. So a case is named
once, and each claim names its kind:

    shared = case("a shared store", planted("small", shared_store, task))
    controls(positive=[shared], negative=[case("untrained", untrained(units))])
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from mnemoscope.claims.claim import Control, Criterion, Direction, Measured
from mnemoscope.models.subjects import Subject

Case = Callable[..., Control]
"""A control whose kind is still open."""


def most(name: str, direction: Direction, margin: float, unit: str) -> Criterion:
    """In more than half of the replicates the effect `name` lies above or below the margin, or within it."""
    return Criterion(name=name, quantifier="most", direction=direction, margin=margin, unit=unit)


def case(name: str, plant: Callable[[int], Mapping[str, Subject] | Mapping[str, Measured]], *, n: int = 4) -> Case:
    """A control with `n` planted cases."""
    return partial(Control, name=name, plant=plant, n=n)


def controls(**cases: Iterable[Case]) -> tuple[Control, ...]:
    """Controls by kind: `positive` ones must meet the criteria of the claim, `negative` ones must not."""
    return tuple(each(kind=kind) for kind, chosen in cases.items() for each in chosen)


def table(name: str, measured: Mapping[str, Measured], *, n: int = 1) -> Case:
    """A control of numbers in the place of models: by configuration (or `draw`) what was measured on it."""
    return case(name, partial(_table, dict(measured)), n=n)


def _table(measured: Mapping[str, Measured], number: int) -> Mapping[str, Measured]:
    return measured
