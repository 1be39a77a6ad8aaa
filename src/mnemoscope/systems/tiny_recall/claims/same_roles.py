"""T13: the same two roles appear for every seed, whatever these are; only the number of the head changes.

A way in which two heads can differ is above 0 in at most one of six effects; the claim holds if any of them does in
all seeds, and its p is multiplied by six. Every pair is enumerated, so that the effect of a seed has no error and one
exception counts.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from mnemoscope import CLAIMS, Criterion, InputError, Subject
from mnemoscope.analyses import lowest_skill_accuracy
from mnemoscope.claims import GATE, LEARNED, case, controls, table
from mnemoscope.interventions import Direction
from mnemoscope.models import untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import patching_recovery
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, as_v3, asked_of_more, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match, twin_elimination

HALF = 0.5
EVERY = 100_000
"""More pairs than there are."""
DIFFERENCES = {"values": "exchange_answer", "repeat": "toggle_repeat"}
CARRIED: Mapping[str, Bool[np.ndarray, " difference"]] = {
    "values": np.array([True, False]),
    "repeat": np.array([False, True]),
    "both": np.array([True, True]),
    "nothing": np.array([False, False]),
}
WAYS = {f"{one}-{other}": (one, other) for one, other in combinations(CARRIED, 2)}
"""In which two heads can differ."""


def measure(subject: Subject, *, direction: Direction = "denoising") -> dict[str, float]:
    """The clearness with which two heads of a layer divide the work in each way, `GATE`, and what each head carries."""
    if (n_heads := subject.model.cfg.n_heads) != 2:
        raise InputError(f"the model must have two heads, to divide the work; got {n_heads}; take v3's size")
    shares = np.stack(
        [
            patching_recovery(subject, kind=kind, skills=("recall",), direction=direction, n=EVERY)
            for kind in DIFFERENCES.values()
        ]
    )
    each = {f"{name}, H{head}": float(shares[i, head]) for i, name in enumerate(DIFFERENCES) for head in range(n_heads)}
    return {GATE: lowest_skill_accuracy(subject), **ways(shares), **each}


def ways(shares: Float[np.ndarray, "difference head"]) -> dict[str, float]:
    """By way of dividing the work, how clearly two heads follow it: above 0 where they do.

    Shares of the values and of the repeat come across with each head.
    """
    return {
        way: max(
            min(_clearly(shares[:, a], CARRIED[one]), _clearly(shares[:, b], CARRIED[other]))
            for a, b in ((0, 1), (1, 0))
        )
        for way, (one, other) in WAYS.items()
    }


def _clearly(shares: Float[np.ndarray, " difference"], carried: Bool[np.ndarray, " difference"]) -> float:
    return float(np.where(carried, shares - HALF, HALF - shares).min())


_UNIT = "share of the logit difference"
UNITS = units("v3")
_CONTROLS = controls(
    positive=(
        as_v3("store and match", store_and_match, n=1),
        as_v3("one head a skill", dissociated, n=1),
        table("values and repeat", {"v3": {GATE: 1.0, **ways(np.array([[0.8, 0.2], [0.3, 0.9]]))}}),
    ),
    negative=(
        as_v3("two heads alike", twin_elimination, n=1),
        table("a share at the margin", {"v3": {GATE: 1.0, **ways(np.array([[0.8, HALF], [0.3, 0.9]]))}}),
        case("untrained", untrained(UNITS)),
    ),
)
_CLAIM = asked_of_more(
    id="T13",
    statement="The same two roles appear in every seed, whatever they are; only the number of the head changes.",
    source="tiny-recall, article",
    parts=tuple(Criterion(name=way, quantifier="every", margin=0.0, unit=_UNIT) for way in WAYS),
    joined="any",
    gate=LEARNED,
    units=UNITS,
    controls=_CONTROLS,
    measure=measure,
    explanation=TEXTS.explain("T13"),
    factors={"direction": ("noising",), "recipe": ("published",)},
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "most",
        "The same two roles appear in most seeds, whatever they are.",
        parts=tuple(Criterion(name=way, quantifier="most", margin=0.0, unit=_UNIT) for way in WAYS),
        joined="any",
        controls=_CONTROLS,
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
