"""What claims are put together from: criteria, controls, and the plants and models that several claims share."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

from mnemoscope import Claim, Control, Criterion, HookedModel, Subject
from mnemoscope.judging import Measured
from mnemoscope.models import Plant
from mnemoscope.models.constructed import induction
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams

Case = Callable[..., Control]
"""A control whose kind is still open: what is planted meets the criteria of one claim and not those of its rival."""

birth = partial(Claim, system="birth")
noisy_recall = partial(Claim, system="noisy-recall")

RANDOM_TRIGGERS, FIXED_TRIGGERS = InContextBigrams(length=64), InContextBigrams(length=64, triggers="fixed")
"""Tasks of planted models: shorter than the units', since a circuit has a dimension per position."""
FIRST_PLANTED = 1_000_000
"""Draws of controls start here, where no replicate's are."""
NEVER = 10_000
"""A step after the last of every recipe."""


def most(name: str, direction: Literal["above", "below", "within"], margin: float, unit: str) -> Criterion:
    """In more than half of the replicates the effect `name` lies above or below the margin, or within it."""
    return Criterion(name=name, quantifier="most", direction=direction, margin=margin, unit=unit)


def case(name: str, plant: Callable[[int], Mapping[str, Subject] | Mapping[str, Measured]], *, n: int = 4) -> Case:
    """A control with `n` planted cases."""
    return partial(Control, name=name, plant=plant, n=n)


def controls(**cases: Iterable[Case]) -> tuple[Control, ...]:
    """Controls by kind: `positive` ones must meet the criteria of the claim, `negative` ones must not."""
    return tuple(each(kind=kind) for kind, chosen in cases.items() for each in chosen)


def table(name: str, measured: Mapping[str, Measured]) -> Case:
    """A control of numbers in the place of models: by configuration (or `draw`) what was measured on it."""
    return case(name, partial(_table, dict(measured)), n=1)


def _table(measured: Mapping[str, Measured], number: int) -> Mapping[str, Measured]:
    return measured


def together(*plants: Plant) -> Plant:
    """A plant of models for the configurations of all of these."""
    return partial(_together, plants)


def _together(plants: tuple[Plant, ...], number: int) -> dict[str, Subject]:
    return {name: subject for plant in plants for name, subject in plant(number).items()}


def any_token() -> HookedModel:
    """The induction circuit, for every token."""
    return induction(FIXED_TRIGGERS.d_vocab, FIXED_TRIGGERS.n_ctx)
