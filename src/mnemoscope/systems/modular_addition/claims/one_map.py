"""C6, a rival to C1: clocks and pizzas are one map up to the phases of its neurons, and attention makes the difference.

Every neuron reads one frequency of both numbers and writes at the sum of its phases. Symmetricity then says how evenly
attention weighs the two numbers: where every head weighs them alike, a clock is as symmetric as a pizza.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import GATE, Measured, case, controls, most, table
from mnemoscope.models import untrained
from mnemoscope.systems.modular_addition.analyses.gradients import evened
from mnemoscope.systems.modular_addition.analyses.one_map import one_map
from mnemoscope.systems.modular_addition.claim_parts import (
    CONSTANT,
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
RIGHT, PHASES = 0.5, 0.9


def measure(subject: Subject) -> dict[str, float]:
    """Accuracy and phases of the map, symmetricity with even attention, and the accuracy."""
    task = task_of(subject)
    found = one_map(subject.model, task)
    return {
        "map": float(found.accuracy),
        "phases": float(found.phases),
        "explained": float(found.explained),
        "evened": evened(subject.model, task),
        "accuracy": accuracy(subject),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The same with softmax (`c1_…`) and with constant attention (`c0_…`)."""
    places = {"c1": measured[SOFTMAX], "c0": measured[CONSTANT]}
    names = ("map", "phases", "explained", "evened")
    return {
        **{f"{place}_{name}": each[name] for place, each in places.items() for name in names},
        GATE: min(float(each["accuracy"]) for each in places.values()),
    }


_BY_HAND = built("a clock and a pizza", c1=clock_by_hand, c0=pizza_by_hand)
_TABLES = built("two tables", c1=lookup_by_hand, c0=lookup_by_hand)
_ONE = {"map": 1.0, "phases": 1.0, "explained": 1.0, "evened": 1.0, "accuracy": 1.0}
_PIZZAS_ALONE = table("only pizzas can be read so", {SOFTMAX: {**_ONE, "map": 0.1}, CONSTANT: _ONE})
_UNEVEN = table("a clock that stays asymmetric", {SOFTMAX: {**_ONE, "evened": 0.4}, CONSTANT: _ONE})
_UNTRAINED = case("untrained", untrained(UNITS))
_SHARE, _COSINE = "accuracy", "cosine"
_C6 = addition_claim(
    id="C6",
    statement="Clocks and pizzas are one map up to the phases of its neurons; symmetricity is even attention.",
    source="arXiv 2512.25060, as a rival to the clock and the pizza",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C6", right=RIGHT, phases=PHASES),
    prompts="enumerated",
    develops=False,
    parts=(
        most("c1_map", "above", RIGHT, _SHARE),
        most("c0_map", "above", RIGHT, _SHARE),
        most("c1_phases", "above", PHASES, _COSINE),
        most("c0_phases", "above", PHASES, _COSINE),
        most("c1_evened", "above", SYMMETRIC, _COSINE),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_BY_HAND,), negative=(_TABLES, _PIZZAS_ALONE, _UNEVEN, _UNTRAINED)),
)
C6 = _C6.against(
    _C6.rival(
        "pizzas",
        "Pizzas alone can be read so.",
        parts=(most("c0_map", "above", RIGHT, _SHARE), most("c1_map", "below", RIGHT, _SHARE)),
        controls=controls(positive=(_PIZZAS_ALONE,), negative=(_BY_HAND, _TABLES)),
    ),
)
CLAIMS.add(C6.id, C6)
