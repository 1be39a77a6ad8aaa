"""B14, the causal sibling of B5: whether the match waits for the output, or for previous-token keys.

In one model nothing is held, in one W_O^2 is perfect from the first step, in one the attention of layer 0 is. Recall of
W_K^2 is read from the matrices alone, so that a clamp does not help it by itself.
"""

import math
from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models.constructed import prescribe_course, step_course
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER, SGD, TEXTS, birth
from mnemoscope.systems.in_context_bigrams.claims.order_of_learning import MEMORIES, READINGS, onsets
from mnemoscope.systems.in_context_bigrams.presets import HELD, HELD_SEEDS

FREE, OUTPUT, PREVIOUS = "memories", *HELD
UNITS = {
    FREE: Configuration(preset=FREE, recipe=SGD),
    **{name: Configuration(preset=FREE, recipe=SGD, changes=changes) for name, changes in HELD.items()},
}
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


def _matched_at(name: str, free: float, output: float, previous: float) -> Case:
    """A control in which W_K^2 is learned at these steps."""
    steps = dict(zip(UNITS, (free, output, previous), strict=True))
    courses = {
        unit: {f"{kind}_{MEMORIES['match']}": step_course(step) for kind in ("matched", "recall")}
        for unit, step in steps.items()
    }
    return case(name, prescribe_course(UNITS, courses), n=1)


_for_output = _matched_at("waits for the output", 200, 50, 200)
_for_previous = _matched_at("waits for the keys before", 200, 200, 50)
_for_both = _matched_at("each brings it forward alike", 200, 100, 100)
_for_neither = _matched_at("waits for neither", 200, 200, 200)
_never = _matched_at("never", NEVER, NEVER, NEVER)

_B14 = birth(
    id="B14",
    statement="W_K^2 waits for the output: perfect from the start, W_O^2 brings it forward, and more than W_K^1 does.",
    source="Bietti et al. 2023, Birth of a Transformer, as presented; held ideal as in Singh et al. 2024",
    units=UNITS,
    first_seed=HELD_SEEDS,
    measure=match_onset,
    compare=forward,
    explanation=TEXTS.explain("B14", forward=FORWARD),
    develops=False,
    parts=(
        most("output_forward", "above", FORWARD, "log₂ of steps"),
        most("output_more", "above", FORWARD, "log₂ of steps"),
    ),
    factors={"reading": READINGS[1:]},
    controls=controls(positive=(_for_output,), negative=(_for_previous, _for_both, _for_neither, _never)),
)
B14 = _B14.against(
    _B14.rival(
        "previous",
        "It waits for previous-token attention: perfect from the start, that brings it forward.",
        parts=(most("previous_forward", "above", FORWARD, "log₂ of steps"),),
        controls=controls(positive=(_for_previous, _for_both), negative=(_for_output, _for_neither)),
    ),
)
CLAIMS.add(B14.id, B14)
