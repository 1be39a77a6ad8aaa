"""What claims are put together from: criteria, units, controls, and the plants that several claims share."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

from mnemoscope import Claim, Configuration, Control, Criterion, HookedModel, Subject
from mnemoscope.analyses import LEARNED
from mnemoscope.judging import Measured
from mnemoscope.models import Plant, planted, untrained
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

Case = Callable[..., Control]
"""A control whose kind is still open: what is planted meets the criteria of one claim and not those of its rival."""

REPEATS = PermutationLookup(repeat_ratio=0.3)
"""The task of v2 and v3, on which hand-set circuits are planted."""
FIRST_PLANTED = 1_000_000
"""Draws of controls start here, where no replicate's are."""


def units(*presets: str, recipe: str = "quick") -> dict[str, Configuration]:
    """Configurations by preset."""
    return {name: Configuration(preset=name, recipe=recipe) for name in presets}


V3 = units("v3", recipe="published")
OTHER_TRAINING = {"recipe": ("quick",), "model.normalization": ("none",)}
"""Factors of claims about published models."""
tiny_recall = partial(Claim, system="tiny-recall")
of_v3 = partial(tiny_recall, units=V3, gate=LEARNED, n_replicates=32)
"""A claim about a mechanism of v3, where it has learned both skills."""


def most(name: str, direction: Literal["above", "below", "within"], margin: float, unit: str) -> Criterion:
    """In more than half of the replicates the effect `name` lies above or below the margin, or within it."""
    return Criterion(name=name, quantifier="most", direction=direction, margin=margin, unit=unit)


def case(name: str, plant: Callable[[int], Mapping[str, Subject] | Mapping[str, Measured]], *, n: int = 4) -> Case:
    """A control with `n` planted cases."""
    return partial(Control, name=name, plant=plant, n=n)


def controls(**cases: Iterable[Case]) -> tuple[Control, ...]:
    """Controls by kind: `positive` ones must meet the criteria of the claim, `negative` ones must not."""
    return tuple(each(kind=kind) for kind, chosen in cases.items() for each in chosen)


def table(name: str, measured: Mapping[str, Measured], *, n: int = 1) -> Case:
    """A control of numbers in the place of models: by configuration what was measured on it."""
    return case(name, partial(_table, dict(measured)), n=n)


def _table(measured: Mapping[str, Measured], number: int) -> Mapping[str, Measured]:
    return measured


def together(*plants: Plant) -> Plant:
    """A plant of models for the configurations of all of these; where several have one, that of the last."""
    return partial(_together, plants)


def _together(plants: tuple[Plant, ...], number: int) -> dict[str, Subject]:
    return {name: subject for plant in plants for name, subject in plant(number).items()}


def as_v3(name: str, make: Callable[[], HookedModel], *, n: int = 4) -> Case:
    """A control in which a model with hand-set weights stands in the place of v3."""
    return case(name, planted("v3", make, REPEATS), n=n)


UNTRAINED = case("untrained", untrained(V3))
"""In the place of v3."""
