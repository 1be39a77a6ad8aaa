"""C5: the key frequencies of the logits are all there is: with them alone answers are as good, without them chance."""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import GATE, Measured, case, controls, most, table
from mnemoscope.models import untrained
from mnemoscope.systems.modular_addition.analyses.circles import FEW, HELD, key_frequency_losses
from mnemoscope.systems.modular_addition.claim_parts import (
    CONSTANT,
    LEARNED,
    SOFTMAX,
    TEXTS,
    accuracy,
    addition_claim,
    built,
    clock_by_hand,
    lookup_by_hand,
    task_of,
    units,
)

UNITS = units(SOFTMAX, CONSTANT)
AS_GOOD, CHANCE = 0.05, 0.1
"""Nats, and an accuracy: three times that of a guess among 31."""


def measure(subject: Subject, *, held: float = HELD) -> dict[str, float]:
    """The loss that the restriction adds, the accuracy that the exclusion leaves, the number of keys, the accuracy."""
    found = key_frequency_losses(subject.model, task_of(subject), held=held)
    loss, right = found.loss, found.accuracy
    return {
        "restricted": float(loss.sel(logits="restricted") - loss.sel(logits="all")),
        "excluded": float(right.sel(logits="excluded")),
        "n_key": float(found.n_key),
        "accuracy": accuracy(subject),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The same with softmax (`c1_…`) and with constant attention (`c0_…`)."""
    places = {"c1": measured[SOFTMAX], "c0": measured[CONSTANT]}
    names = ("restricted", "excluded", "n_key")
    return {
        **{f"{place}_{name}": each[name] for place, each in places.items() for name in names},
        GATE: min(float(each["accuracy"]) for each in places.values()),
    }


_CLOCKS = built("two clocks", c1=clock_by_hand, c0=clock_by_hand)
_TABLES = built("two tables", c1=lookup_by_hand, c0=lookup_by_hand)
_RIGHT = {"restricted": 0.0, "excluded": 0.03, "n_key": 4.0, "accuracy": 1.0}
_LEFT = table("enough is left with constant attention", {SOFTMAX: _RIGHT, CONSTANT: {**_RIGHT, "excluded": 0.6}})
_UNTRAINED = case("untrained", untrained(UNITS))
_C5 = addition_claim(
    id="C5",
    statement="The key frequencies of the logits are as good alone, and what is left without them is chance.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C5", held=HELD, as_good=AS_GOOD, chance=CHANCE, few=FEW),
    prompts="enumerated",
    develops=False,
    parts=tuple(
        most(f"{place}_{name}", "below", margin, unit)
        for place in ("c1", "c0")
        for name, margin, unit in (
            ("restricted", AS_GOOD, "nats"),
            ("excluded", CHANCE, "accuracy"),
            ("n_key", FEW + 0.5, "frequencies"),
        )
    ),
    factors={"held": (0.9, 0.99), "recipe": ("published",)},
    controls=controls(positive=(_CLOCKS,), negative=(_TABLES, _LEFT, _UNTRAINED)),
)
C5 = _C5.against(
    _C5.rival(
        "difference",
        "With constant attention the key frequencies leave answers behind, by terms in the difference of the numbers.",
        parts=(most("c0_excluded", "above", CHANCE, "accuracy"),),
        controls=controls(positive=(_LEFT,), negative=(_CLOCKS, _UNTRAINED)),
    ),
)
CLAIMS.add(C5.id, C5)
