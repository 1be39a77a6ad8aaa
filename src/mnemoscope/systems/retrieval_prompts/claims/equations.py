"""L1: large language models solve the equations almost perfectly up to D = 5."""

from typing import Any

from mnemoscope import CLAIMS
from mnemoscope.claims import Measured, controls
from mnemoscope.systems.retrieval_prompts.accuracy import MOST_PROBABLE, SAMPLED, cells
from mnemoscope.systems.retrieval_prompts.claim_parts import (
    SEEN_BEFORE,
    TEXTS,
    N,
    about_large_models,
    accuracy_of,
    right,
    size,
    untrained,
)

ALMOST_PERFECT = 0.95
HALF = 0.5


def equations(model: Any, *, n: int = N, scoring: str = MOST_PROBABLE) -> Measured:
    """The smallest accuracy over difficulties; beside it that of each, `D=1` to `D=5`."""
    found = accuracy_of(model, cells(("equations",)), n=n, scoring=scoring)
    each = {label.removeprefix("equations "): value for label, value in found.items()}
    return {"effect": min(each.values()), **each, **size(model)}


def five_equations(model: Any, *, n: int = N, scoring: str = MOST_PROBABLE) -> Measured:
    """The accuracy at D = 5."""
    (found,) = accuracy_of(model, cells(("equations",), (5,)), n=n, scoring=scoring).values()
    return {"effect": found, **size(model)}


_LIMITS = (
    "It does not show that a model solves the equations step by step, nor that it would with other names or more "
    f"chains. {SEEN_BEFORE}"
)
l1 = about_large_models(
    id="L1",
    statement="Large language models solve the equations formulation almost perfectly for every D up to 5.",
    quantifier="most",
    margin=ALMOST_PERFECT,
    unit="accuracy (smallest over D)",
    measure=equations,
    explanation=TEXTS.explain("L1", almost_perfect=ALMOST_PERFECT),
    controls=controls(positive=[right(0.995, equations)], negative=[right(0.9, equations), untrained]),
    factors={"scoring": (SAMPLED,)},
)
shallow = l1.rival(
    "shallow",
    "They know the first steps only: of five equations most miss at least half.",
    quantifier="most",
    margin=HALF,
    direction="below",
    unit="accuracy at D = 5",
    measure=five_equations,
    explanation=TEXTS.explain("L1-shallow"),
    controls=controls(positive=[untrained], negative=[right(0.995, five_equations), right(0.6, five_equations)]),
)
CLAIMS.add(l1.id, l1.against(shallow))
