"""T15: it is the second head that makes recall possible, "a qualitative leap, not just more capacity".

Refuted if in most seeds a second head adds no more than a quarter to the accuracy of recall, at width 16 or at width
32, or if a model twice as wide with a single head recalls at least half of the time.

With r the accuracy of recall on every sequence over unseen mappings whose last x stood there before,

    second_head = min(r[v3] - r[v2], r[d16h2] - r[d16h1])        one head more, the same width, the same data
    width       = r[d64h1]                                       twice the width of v3, one head

Rivals: capacity does it (one wide head recalls); width is needed too (at width 16 two heads do not recall).

It shows what training finds with this recipe. It does not show what an architecture could express, nor what the second
head does. No model is set aside: whether recall is learned is the question.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import accuracy_by_skill
from mnemoscope.judging import Measured, case, controls, most, table
from mnemoscope.models import untrained
from mnemoscope.systems.tiny_recall.claim_parts import tiny_recall, units

GAIN = 0.25
HALF = 0.5
RECALLS = 0.9
UNITS = units("d16h1", "d16h2", "v2", "v3", "d64h1")


def measure(subject: Subject) -> dict[str, float]:
    """Accuracy of `recall` on unseen mappings, from 0 to 1.

    Raises:
        InputError: The model is too small for the task.
    """
    return {"recall": accuracy_by_skill(subject)["recall"]}


def compare(measured: Mapping[str, Measured]) -> dict[str, float]:
    """What a second head adds, and what models have without width or without a second head."""
    recall = {name: float(values["recall"]) for name, values in measured.items()}
    return {
        "second_head": min(recall["v3"] - recall["v2"], recall["d16h2"] - recall["d16h1"]),
        "width": recall["d64h1"],
        "narrow": recall["d16h2"],
    }


def outcome(*recall: float) -> dict[str, Measured]:
    """A planted outcome: the accuracy of recall of every configuration, in their order."""
    return {name: {"recall": value} for name, value in zip(UNITS, recall, strict=True)}


_untrained = case("untrained", untrained(UNITS))
_second_head = table("the second head decides", outcome(0.25, 1.0, 0.25, 1.0, 0.25))
_CAPACITY = outcome(0.25, 0.25, 0.6, 1.0, 1.0)
_capacity = table("capacity decides", _CAPACITY)
_CLAIM = tiny_recall(
    id="T15",
    statement="A second head makes recall possible, at width 16 and 32; twice the width with one head does not.",
    source="tiny-recall, article on the model with repeats",
    parts=(most("second_head", "above", GAIN, "accuracy"), most("width", "below", HALF, "accuracy")),
    units=UNITS,
    controls=controls(
        positive=(_second_head,),
        negative=(_capacity, table("a gain of margin size", outcome(0.5, 0.75, 0.5, 0.75, 0.5)), _untrained),
    ),
    measure=measure,
    compare=compare,
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "capacity",
        "Capacity makes recall possible: a single head recalls if the model is wide.",
        parts=(most("width", "above", RECALLS, "accuracy"),),
        controls=controls(positive=(_capacity,), negative=(_second_head, _untrained)),
    ),
    _CLAIM.rival(
        "width-too",
        "A second head alone does not do: at width 16 two heads do not recall.",
        parts=(most("narrow", "below", RECALLS, "accuracy"),),
        controls=controls(positive=(table("width decides", _CAPACITY),), negative=(_second_head,)),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
