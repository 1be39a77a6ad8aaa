"""L2: large language models do well on lives-with and kingdoms at D = 5, and on functions and relatives."""

from typing import Any

from mnemoscope import CLAIMS
from mnemoscope.claims import Measured, controls, most
from mnemoscope.systems.retrieval_prompts.accuracy import MOST_PROBABLE, SAMPLED, Cell
from mnemoscope.systems.retrieval_prompts.claim_parts import (
    TEXTS,
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


l2 = about_large_models(
    id="L2",
    statement="Large language models do well on lives-with and kingdoms at D = 5, and on functions and relatives.",
    parts=tuple(most(name, "above", WELL, _UNIT) for name in ASKED),
    measure=formulations,
    explanation=TEXTS.explain("L2", well=WELL),
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
