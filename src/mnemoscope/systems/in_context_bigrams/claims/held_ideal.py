"""B14, the causal sibling of B5: whether the match waits for the output, or for previous-token keys.

In one model nothing is held, in one W_O^2 is perfect from the first step, in one the attention of layer 0 is. Recall of
W_K^2 is read from the matrices alone, so that a clamp does not help it by itself. B14 reads it every ten steps, and
B14-early at every step.
"""

import math
from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Subject
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models.constructed import prescribe_course, step_course
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER, SGD, TEXTS, birth
from mnemoscope.systems.in_context_bigrams.claims.order_of_learning import MEMORIES, READINGS, onsets
from mnemoscope.systems.in_context_bigrams.presets import EARLY, EARLY_SEEDS, HELD, HELD_SEEDS

FREE, OUTPUT, PREVIOUS = "memories", *HELD
UNITS, EARLY_UNITS = (
    {name: Configuration(preset=FREE, recipe=SGD, changes=(*kept, *held)) for name, held in {FREE: (), **HELD}.items()}
    for kept in ((), EARLY)
)
FORWARD = 0.25
"""Binary logarithm of a factor of 1.19 in steps, a distance of two checkpoints at step 100."""
_MATCH = ("match",)


def match_onset(subject: Subject, *, reading: str = "matched") -> dict[str, float]:
    """The first kept step from which W_K^2 recalls the triggers, by a reading of `order_of_learning`; at least 1."""
    return {"match": max(1.0, onsets(subject, reading, _MATCH)["match"])}


def forward(measured: Mapping[str, Measured]) -> Measured:
    """By which factor, as a binary logarithm, the match comes earlier with each part held ideal."""
    steps = {name: float(found["match"]) for name, found in measured.items()}
    output, previous = (math.log2(steps[FREE] / steps[name]) for name in (OUTPUT, PREVIOUS))
    return {
        "output_forward": output,
        "previous_forward": previous,
        "output_more": output - previous,
        **{f"{name} onset": step for name, step in steps.items()},
    }


def _matched_at(units: Mapping[str, Configuration], name: str, free: float, output: float, previous: float) -> Case:
    """A control in which W_K^2 is learned at these steps."""
    steps = dict(zip(units, (free, output, previous), strict=True))
    courses = {
        unit: {f"{kind}_{MEMORIES['match']}": step_course(step) for kind in ("matched", "recall")}
        for unit, step in steps.items()
    }
    return case(name, prescribe_course(units, courses), n=1)


def _held_ideal(
    id: str, statement: str, units: Mapping[str, Configuration], first_seed: int, free: int, held: int, between: int
) -> Claim:
    """The claim and its rivals on some units.

    In controls the match comes at `free` unless what it waits for is held, and at `held` then; at `between` with
    either held, where it waits for both.
    """
    planted = partial(_matched_at, units)
    for_output = planted("waits for the output", free, held, free)
    for_previous = planted("waits for the keys before", free, free, held)
    for_both = planted("each brings it forward alike", free, between, between)
    for_neither = planted("waits for neither", free, free, free)
    never = planted("never", NEVER, NEVER, NEVER)
    claim = birth(
        id=id,
        statement=statement,
        source="Bietti et al. 2023, Birth of a Transformer, as presented; held ideal as in Singh et al. 2024",
        units=units,
        first_seed=first_seed,
        measure=match_onset,
        compare=forward,
        explanation=TEXTS.explain(id, forward=FORWARD),
        develops=False,
        parts=(
            most("output_forward", "above", FORWARD, "log₂ of steps"),
            most("output_more", "above", FORWARD, "log₂ of steps"),
        ),
        factors={"reading": READINGS[1:]},
        controls=controls(positive=(for_output,), negative=(for_previous, for_both, for_neither, never)),
    )
    return claim.against(
        claim.rival(
            "previous",
            "It waits for previous-token attention: perfect from the start, that brings it forward.",
            parts=(most("previous_forward", "above", FORWARD, "log₂ of steps"),),
            controls=controls(positive=(for_previous, for_both), negative=(for_output, for_neither)),
        ),
    )


B14 = _held_ideal(
    "B14",
    "W_K^2 waits for the output: perfect from the start, W_O^2 brings it forward, and more than W_K^1 does.",
    UNITS,
    HELD_SEEDS,
    free=200,
    held=50,
    between=100,
)
B14_EARLY = _held_ideal(
    "B14-early",
    "Read at every step, a perfect W_O^2 brings W_K^2 forward, and more than a perfect W_K^1 does.",
    EARLY_UNITS,
    EARLY_SEEDS,
    free=40,
    held=5,
    between=10,
)
for _claim in (B14, B14_EARLY):
    CLAIMS.add(_claim.id, _claim)
