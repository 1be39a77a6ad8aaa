"""C3: embeddings are a few circles.

The few largest modes of the embedding hold most of its variance over numbers, and each is round: cosine and sine are of
equal size and at right angles. Random embeddings have .38 [.36, .39] of their variance in five of fifteen modes
(20 draws of width 64).
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import GATE, Measured, case, controls, most
from mnemoscope.models import untrained
from mnemoscope.systems.modular_addition.analyses.circles import FEW, embedding_modes
from mnemoscope.systems.modular_addition.claim_parts import (
    CONSTANT,
    LEARNED,
    SOFTMAX,
    TEXTS,
    accuracy,
    addition_claim,
    built,
    clock_by_hand,
    lines_by_hand,
    lookup_by_hand,
    pizza_by_hand,
    task_of,
    units,
)

UNITS = units(SOFTMAX, CONSTANT)
MOST, ROUND = 0.75, 0.5
_SHARE, _RATIO = "share of the variance", "ratio of singular values"


def measure(subject: Subject) -> dict[str, float]:
    """The share of the largest modes, their roundness, and the accuracy."""
    modes = embedding_modes(subject.model, task_of(subject))
    return {"few": float(modes.few), "round": float(modes["round"]), "accuracy": accuracy(subject)}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The same with softmax (`c1_…`) and with constant attention (`c0_…`)."""
    places = {"c1": measured[SOFTMAX], "c0": measured[CONSTANT]}
    return {
        **{f"{place}_{name}": each[name] for place, each in places.items() for name in ("few", "round")},
        GATE: min(float(each["accuracy"]) for each in places.values()),
    }


_CIRCLES = built("a clock and a pizza", c1=clock_by_hand, c0=pizza_by_hand)
_TABLES = built("two tables", c1=lookup_by_hand, c0=lookup_by_hand)
_UNTRAINED = case("untrained", untrained(UNITS))
_C3 = addition_claim(
    id="C3",
    statement="Embeddings are a few circles.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C3", few=FEW, most=MOST, round=ROUND),
    prompts="enumerated",
    develops=False,
    parts=(
        most("c1_few", "above", MOST, _SHARE),
        most("c0_few", "above", MOST, _SHARE),
        most("c1_round", "above", ROUND, _RATIO),
        most("c0_round", "above", ROUND, _RATIO),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_CIRCLES,), negative=(_TABLES, _UNTRAINED)),
)
C3 = _C3.against(
    _C3.rival(
        "lines",
        "With constant attention they are lines, not circles.",
        parts=(most("c0_few", "above", MOST, _SHARE), most("c0_round", "below", ROUND, _RATIO)),
        controls=controls(
            positive=(built("a clock and a pizza of lines", c1=clock_by_hand, c0=lines_by_hand),), negative=(_CIRCLES,)
        ),
    ),
)
CLAIMS.add(C3.id, C3)
