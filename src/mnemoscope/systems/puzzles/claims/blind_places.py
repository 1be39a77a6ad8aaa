"""P4 and P5: places of palindromes that go unseen, and the head that repairs one of them."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import EFFECT, GATE, Case, Measured, case, controls, most
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.palindrome import accuracies, called_palindrome, removal_costs, roles
from mnemoscope.systems.puzzles.claim_parts import TEXTS, units
from mnemoscope.systems.puzzles.claims.palindrome import (
    BLIND,
    NEEDED,
    PALINDROME,
    PUBLISHED_CIRCUIT,
    UNTRAINED,
    built,
    palindrome_claim,
    planted,
)
from mnemoscope.systems.puzzles.constructed import palindrome as models
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

UNIFORM = "palindrome-uniform"
BOTH = units(PALINDROME, UNIFORM)
_SHARE = "share called palindromes"


def measure_blindness(subject: Subject) -> dict[str, float]:
    """`worst`, the share of sequences broken at one place only that are called palindromes, where it is largest.

    Beside it `n_blind`, the number of places where it is above one half.
    """
    found = called_palindrome(subject)
    return {
        GATE: min(accuracies(subject).values()),
        "worst": float(found.max()),
        "n_blind": float((found > BLIND).sum()),
    }


def compare_generators(measured: Mapping[str, Measured]) -> dict[str, float]:
    """`worst` of either configuration (`coin` and `uniform`), and the number of blind places of either."""
    named = {"coin": measured[PALINDROME], "uniform": measured[UNIFORM]}
    return {
        GATE: min(float(each[GATE]) for each in named.values()),
        **{name: float(each["worst"]) for name, each in named.items()},
        **{f"n_blind {name}": float(each["n_blind"]) for name, each in named.items()},
    }


def measure_repair(subject: Subject, *, needed: float = NEEDED) -> dict[str, float]:
    """Margins by which the other heads repair one place only (`EFFECT`), several (`several`), or nothing (`idle`).

    Costs are accuracies lost with one of the two other heads at its mean: on sequences broken at one pair only, pair by
    pair, and on palindromes. M, `needed`, is the cost above which a place needs a head.

        EFFECT  = max over heads of min(largest cost - M, M - second largest cost)
        several = max over heads of second largest cost - M
        idle    = M - largest cost of all
    """
    costs = removal_costs(subject, roles(subject).others(subject.model))
    descending = np.sort(costs.values, axis=1)[:, ::-1]
    first, second = descending[:, 0], descending[:, 1]
    return {
        GATE: min(accuracies(subject).values()),
        EFFECT: float(np.minimum(first - needed, needed - second).max()),
        "several": float((second - needed).max()),
        "idle": float((needed - first).min()),
    }


def _generators(name: str, coin: models.MirrorCircuit, uniform: models.MirrorCircuit) -> Case:
    """A control: the circuits of a model for either generator."""
    makes = {PALINDROME: (coin, Palindrome()), UNIFORM: (uniform, Palindrome(redrawn="uniform"))}
    plants = [set_by_hand(unit, partial(built, circuit), task) for unit, (circuit, task) in makes.items()]
    return case(name, combined(*plants), n=1)


_blind = _generators("blind with both generators", models.BLIND, models.BLIND)
_cured = _generators("blind with the original generator", models.BLIND, models.PUBLISHED)
_seeing = _generators("never blind", models.PUBLISHED, models.PUBLISHED)
_P4 = palindrome_claim(
    id="P4",
    statement="There are blind places: most sequences broken only there are called palindromes.",
    units=BOTH,
    measure=measure_blindness,
    compare=compare_generators,
    explanation=TEXTS.explain("P4", blind=BLIND),
    parts=(most("coin", "above", BLIND, _SHARE),),
    controls=controls(positive=(_blind, _cured), negative=(_seeing,)),
)
P4 = _P4.against(
    _P4.rival(
        "generator",
        "The generator makes few such sequences: with a uniform number of redrawn values no place is blind.",
        parts=(most("coin", "above", BLIND, _SHARE), most("uniform", "below", BLIND, _SHARE)),
        controls=controls(positive=(_cured,), negative=(_blind, _seeing, case("untrained", untrained(BOTH)))),
    ),
)
_repaired = planted("the other heads repair one place", models.REPAIRED)
_shared = planted("two heads share the pairs", models.SHARED)
_P5 = palindrome_claim(
    id="P5",
    statement="Another head repairs one blind place, and does nothing else.",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    measure=measure_repair,
    explanation=TEXTS.explain("P5", needed=NEEDED),
    choices={"needed": (NEEDED / 2, 2 * NEEDED)},
    controls=controls(positive=(_repaired,), negative=(_shared, PUBLISHED_CIRCUIT, UNTRAINED)),
)
P5 = _P5.against(
    _P5.rival(
        "several",
        "Another head serves several places, or palindromes too.",
        parts=(most("several", "above", 0.0, "accuracy"),),
        controls=controls(positive=(_shared,), negative=(_repaired, UNTRAINED)),
    ),
    _P5.rival(
        "idle",
        "No place needs another head.",
        parts=(most("idle", "above", 0.0, "accuracy"),),
        controls=controls(positive=(PUBLISHED_CIRCUIT,), negative=(_repaired, _shared)),
    ),
)
for _claim in (P4, P5):
    CLAIMS.add(_claim.id, _claim)
