"""Controls of the claims: positive and negative, and the plants that several claims use."""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope import Control, Subject
from mnemoscope.judging import Measured
from mnemoscope.models import Plant
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

REPEATS = PermutationLookup(repeat_ratio=0.3)
"""The task of v2 and v3, on which hand-set circuits are planted."""

_Planted = Callable[[int], Mapping[str, Subject] | Mapping[str, Measured]]


def positive(name: str, plant: _Planted, *, n: int = 4) -> Control:
    """A control that must meet the criteria of the claim, with `n` planted cases."""
    return Control(name=name, kind="positive", plant=plant, n=n)


def negative(name: str, plant: _Planted, *, n: int = 4) -> Control:
    """A control that must not meet the criteria of the claim, with `n` planted cases."""
    return Control(name=name, kind="negative", plant=plant, n=n)


def table(measured: Mapping[str, Measured]) -> Callable[[int], dict[str, Measured]]:
    """A plant of numbers in the place of models: by configuration what was measured on it, the same in every case."""
    return partial(_table, dict(measured))


def _table(measured: Mapping[str, Measured], case: int) -> dict[str, Measured]:
    return dict(measured)


def together(first: Plant, second: Plant) -> Plant:
    """A plant of models for the configurations of both; where both have one, that of the second."""
    return partial(_together, first, second)


def _together(first: Plant, second: Plant, case: int) -> dict[str, Subject]:
    return first(case) | second(case)
