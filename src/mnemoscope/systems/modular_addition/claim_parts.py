"""Parts that several claims share: configurations, the task, and planted models."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mnemoscope import Claim, Configuration, Gate, HookedModel, InputError, Subject
from mnemoscope.claims import Case, ClaimTexts, case
from mnemoscope.models import combined, set_by_hand
from mnemoscope.systems.modular_addition.analyses.circles import answer_logits
from mnemoscope.systems.modular_addition.constructed import FREQUENCIES, clock, lookup, pizza
from mnemoscope.systems.modular_addition.tasks import ModularAddition

SOURCE = "Zhong et al. 2023, The clock and the pizza: two stories in mechanistic explanation of neural networks"
FIRST_SEED = 32
"""Seeds 0 to 7 were looked at while recipes were chosen."""
SOFTMAX, CONSTANT = "addition-c1", "addition-c0"
TASK = ModularAddition(modulus=31)
"""The task of the quick recipes, for models set by hand."""
ACCURACY = 0.99
SYMMETRIC, IRRELEVANT = 0.72, 0.61
"""Halfway between the published means at c from 0 to .1 and from .9 to 1: (.976 + .466) / 2 and (.402 + .824) / 2."""

TEXTS = ClaimTexts(
    Path(__file__).with_name("claims") / "texts.yaml",
    {"accuracy": ACCURACY, "symmetric": SYMMETRIC, "irrelevant": IRRELEVANT},
)
"""The texts of the claims, from `texts.yaml`."""
addition_claim = partial(Claim, system="modular-addition", source=SOURCE, first_seed=FIRST_SEED)
LEARNED = Gate(statement=f"answers {ACCURACY:.0%} of all sums rightly", at_least=ACCURACY)


def units(*names: str) -> dict[str, Configuration]:
    """Configurations by their preset."""
    return {name: Configuration(preset=name) for name in names}


def task_of(subject: Subject) -> ModularAddition:
    """The task of a subject; an `InputError` unless it is modular addition."""
    if not isinstance(subject.task, ModularAddition):
        raise InputError(f"the claim is about modular addition; got a model of {subject.task.name}")
    return subject.task


def accuracy(subject: Subject) -> float:
    """The share of all sums that are answered rightly, those that trained included."""
    task = task_of(subject)
    guess = answer_logits(subject.model, task).argmax(-1).flatten()
    return float((guess == task.table().latents["sum"]).double().mean())


def clock_by_hand() -> HookedModel:
    """A clock for planted subjects."""
    return clock(TASK)


def pizza_by_hand() -> HookedModel:
    """A pizza for planted subjects."""
    return pizza(TASK)


def lookup_by_hand() -> HookedModel:
    """A table for planted subjects."""
    return lookup(TASK)


def lines_by_hand() -> HookedModel:
    """A pizza whose embedding has next to no sines, for measures of the embedding alone."""
    model: Any = pizza(TASK)
    with torch.no_grad():
        model.embed.W_E[:, 1 : 2 * len(FREQUENCIES) : 2] *= 0.01
    return model


def built(name: str, **models: object) -> Case:
    """A control of models by hand: for `c1` and `c0` the function that makes one."""
    places: Mapping[str, str] = {"c1": SOFTMAX, "c0": CONSTANT}
    plants = [set_by_hand(places[place], make, TASK) for place, make in models.items()]  # pyright: ignore[reportArgumentType]
    return case(name, combined(*plants), n=1)
