"""C1: softmax attention makes clocks, constant attention makes pizzas, and two numbers tell them apart.

A table of answers has the clock's symmetricity and irrelevance; that it has no circles tells it from a clock, so
circles are a part of the claim.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import GATE, Measured, case, controls, most
from mnemoscope.models import untrained
from mnemoscope.systems.modular_addition.analyses.circles import embedding_modes, forms
from mnemoscope.systems.modular_addition.analyses.gradients import irrelevance, symmetricity
from mnemoscope.systems.modular_addition.claim_parts import (
    CONSTANT,
    IRRELEVANT,
    LEARNED,
    SOFTMAX,
    SYMMETRIC,
    TEXTS,
    accuracy,
    addition_claim,
    built,
    clock_by_hand,
    lookup_by_hand,
    pizza_by_hand,
    task_of,
    units,
)

UNITS = units(SOFTMAX, CONSTANT)
FEW = 0.75
CLOSE = 0.1
_COSINE, _RATIO, _R2 = "cosine", "ratio of standard deviations", "difference of shares"


def measure(subject: Subject) -> dict[str, float]:
    """Both numbers, the clock's form less the pizza's, the few largest modes, and the accuracy."""
    task = task_of(subject)
    shape = forms(subject.model, task).share
    return {
        "symmetricity": symmetricity(subject.model, task),
        "irrelevance": irrelevance(subject.model, task),
        "form": float(shape.sel(form="clock") - shape.sel(form="pizza")),
        "few": float(embedding_modes(subject.model, task).few),
        "accuracy": accuracy(subject),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """Both models' numbers, with softmax (`clock_…`) and constant attention (`pizza_…`), and a difference."""
    one, other = measured[SOFTMAX], measured[CONSTANT]
    names = ("symmetricity", "irrelevance", "form", "few")
    return {
        **{f"clock_{name}": one[name] for name in names},
        **{f"pizza_{name}": other[name] for name in names},
        "apart": other["symmetricity"] - one["symmetricity"],
        GATE: min(float(one["accuracy"]), float(other["accuracy"])),
    }


_TRUE = built("a clock and a pizza", c1=clock_by_hand, c0=pizza_by_hand)
_SWAPPED = built("the two exchanged", c1=pizza_by_hand, c0=clock_by_hand)
_PIZZAS = built("two pizzas", c1=pizza_by_hand, c0=pizza_by_hand)
_TABLE = built("a table and a pizza", c1=lookup_by_hand, c0=pizza_by_hand)
_UNTRAINED = case("untrained", untrained(UNITS))
_C1 = addition_claim(
    id="C1",
    statement="Models with softmax attention are clocks, and models with constant attention are pizzas.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C1", few=FEW, close=CLOSE),
    prompts="enumerated",
    develops=False,
    parts=(
        most("clock_symmetricity", "below", SYMMETRIC, _COSINE),
        most("pizza_symmetricity", "above", SYMMETRIC, _COSINE),
        most("clock_irrelevance", "above", IRRELEVANT, _RATIO),
        most("pizza_irrelevance", "below", IRRELEVANT, _RATIO),
        most("clock_form", "above", 0, _R2),
        most("pizza_form", "below", 0, _R2),
        most("clock_few", "above", FEW, "share of the variance"),
        most("pizza_few", "above", FEW, "share of the variance"),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_TRUE,), negative=(_SWAPPED, _PIZZAS, _TABLE, _UNTRAINED)),
)
C1 = _C1.against(
    _C1.rival(
        "alike",
        "Symmetricity does not tell the two apart.",
        parts=(most("apart", "below", CLOSE, _COSINE),),
        controls=controls(positive=(_PIZZAS,), negative=(_TRUE,)),
    ),
)
CLAIMS.add(C1.id, C1)
