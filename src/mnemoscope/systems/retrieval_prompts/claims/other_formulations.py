"""L2: large language models do well on lives-with and kingdoms at D = 5, and on functions and relatives."""

from typing import Any

from mnemoscope import CLAIMS
from mnemoscope.claims import GATE, Explanation, Measured, Quantity, controls, most
from mnemoscope.systems.retrieval_prompts.analyses.accuracy import MOST_PROBABLE, SAMPLED, Cell
from mnemoscope.systems.retrieval_prompts.claim_parts import (
    ASKED_OF_MODELS,
    PARAMETERS,
    SEEN_BEFORE,
    N,
    about_large_models,
    accuracy_of,
    plain_only,
    right,
    size,
    untrained,
)

WELL = 0.8
ASKED = {
    "lives_with": Cell(formulation="lives-with", difficulty=5),
    "kingdoms": Cell(formulation="kingdoms"),
    "functions": Cell(formulation="functions"),
    "relatives": Cell(formulation="relatives"),
}
CONDITIONAL = ("functions", "relatives")
_UNIT = "accuracy"


def formulations(model: Any, *, n: int = N, scoring: str = MOST_PROBABLE) -> Measured:
    """The accuracy on each, and the smaller one of the conditional two."""
    found = accuracy_of(model, tuple(ASKED.values()), n=n, scoring=scoring)
    each = {name: found[cell.label] for name, cell in ASKED.items()}
    return {**each, "conditional": min(each[name] for name in CONDITIONAL), **size(model)}


_EXPLANATION = Explanation(
    procedure=f"{ASKED_OF_MODELS}Lives-with and kingdoms are plain retrieval: a chain of five lines is followed. "
    "Functions and relatives are conditional: a step depends on two values that were retrieved. There are four "
    "acceptable answers, of relatives sixteen.",
    quantities={
        "lives_with": Quantity(words="the accuracy on lives-with, D = 5", formula="acc(lives-with)"),
        "kingdoms": Quantity(words="the accuracy on kingdoms", formula="acc(kingdoms)"),
        "functions": Quantity(words="the accuracy on functions", formula="acc(functions)"),
        "relatives": Quantity(words="the accuracy on relatives", formula="acc(relatives)"),
        "conditional": Quantity(
            words="the smaller accuracy of the conditional two", formula="min(acc(functions), acc(relatives))"
        ),
        GATE: PARAMETERS,
    },
    margins="Well is above .8: three quarters of the way from chance, ¼ (on relatives 1/16), to all would be .81.",
    limits="It does not show that models retrieve step by step: the wording names what is asked about, and on "
    f"relatives three of four wrong residences can be ruled out by the relatives of the person alone. {SEEN_BEFORE}",
)
l2 = about_large_models(
    id="L2",
    statement="Large language models do well on lives-with and kingdoms at D = 5, and on functions and relatives.",
    parts=tuple(most(name, "above", WELL, _UNIT) for name in ASKED),
    measure=formulations,
    explanation=_EXPLANATION,
    controls=controls(
        positive=[right(0.995, formulations), right(0.9, formulations)],
        negative=[right(0.6, formulations), plain_only(formulations), untrained],
    ),
    factors={"scoring": (SAMPLED,)},
)
plain = l2.rival(
    "plain",
    "They do well on plain retrieval only: on functions or relatives most do not.",
    parts=(
        most("lives_with", "above", WELL, _UNIT),
        most("kingdoms", "above", WELL, _UNIT),
        most("conditional", "below", WELL, _UNIT),
    ),
    controls=controls(positive=[plain_only(formulations)], negative=[right(0.995, formulations), untrained]),
)
CLAIMS.add(l2.id, l2.against(plain))
