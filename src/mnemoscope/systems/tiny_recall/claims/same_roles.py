"""T13: the same two roles appear for every seed, whatever these are; only the number of the head changes.

Refuted by one seed whose two heads divide the work in another way than those of the others. The rival T13-most asks it
of most seeds.

What a head does is described by what its output z carries, on all sequences with a repeat over unseen mappings: the
share of the difference in logits that comes across with z between that sequence and one in which

    values: the recalled y and the unused value have changed places        (`exchange_answer`)
    repeat: the last x is the one that has not been shown yet              (`toggle_repeat`)

by denoising (`analyses.carriers`). A head carries a difference of which more than one half comes across: the answer is
then nearer to that of the sequence that z comes from. So either head carries the values, the repeat, both or nothing,
and there are six ways in which two heads can differ. The effect of each way, over both assignments of the heads, is the
largest of

    min over heads and differences of (share - 1/2 where the head should carry it, 1/2 - share where it should not)

which is above 0 in at most one of them. The claim holds if one of the ways is found in all seeds; p is multiplied by
six, the number of ways. Two heads that do the same have no two roles.

Every pair is enumerated, so that the effect of a seed has no error and one exception counts.

It shows whether seeds agree in this description of their heads. Sixteen seeds do not exclude a rare exception, and
seeds may agree in a description that misses what the heads are for.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from mnemoscope import CLAIMS, Criterion, InputError, Subject
from mnemoscope.analyses import LEARNED, learned
from mnemoscope.interventions import Direction
from mnemoscope.judging import GATE, case, controls, table
from mnemoscope.models import untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import patching_recovery
from mnemoscope.systems.tiny_recall.claim_parts import as_v3, asked_of_more, units
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
    """How clearly the heads divide the work in each way, `GATE`, and what either head carries.

    Args:
        subject: A model of two heads in one layer.
        direction: As for `patching_recovery`.

    Raises:
        InputError: The model has another number of heads, or is too small for the task.
    """
    if (n_heads := subject.model.cfg.n_heads) != 2:
        raise InputError(f"the model must have two heads, to divide the work; got {n_heads}; take v3's size")
    shares = np.stack(
        [
            patching_recovery(subject, kind=kind, skills=("recall",), direction=direction, n=EVERY)
            for kind in DIFFERENCES.values()
        ]
    )
    each = {f"{name}, H{head}": float(shares[i, head]) for i, name in enumerate(DIFFERENCES) for head in range(n_heads)}
    return {GATE: learned(subject), **ways(shares), **each}


def ways(shares: Float[np.ndarray, "difference head"]) -> dict[str, float]:
    """By way of dividing the work, how clearly two heads follow it: above 0 where they do.

    Args:
        shares: Of the values and of the repeat, that come across with each head.
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
