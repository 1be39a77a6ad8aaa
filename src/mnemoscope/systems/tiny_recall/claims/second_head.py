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

from collections.abc import Mapping, Sequence
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Subject
from mnemoscope.analyses import accuracy_by_skill
from mnemoscope.judging import Measured
from mnemoscope.models import untrained

GAIN = 0.25
HALF = 0.5
RECALLS = 0.9
UNITS = {name: Configuration(preset=name) for name in ("d16h1", "d16h2", "v2", "v3", "d64h1")}


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


def table(recall: Sequence[float], case: int) -> dict[str, dict[str, float]]:
    """A planted outcome: the accuracy of recall of every configuration, in their order."""
    return {name: {"recall": value} for name, value in zip(UNITS, recall, strict=True)}


_UNTRAINED = Control(name="untrained", kind="negative", plant=untrained(UNITS))
_SECOND_HEAD = partial(table, (0.25, 1.0, 0.25, 1.0, 0.25))
_CAPACITY = partial(table, (0.25, 0.25, 0.6, 1.0, 1.0))
_AT_MARGIN = partial(table, (0.5, 0.75, 0.5, 0.75, 0.5))


def _rival(word: str, statement: str, part: Criterion, *controls: Control) -> Claim:
    return Claim(
        id=f"T15-{word}",
        system="tiny-recall",
        statement=statement,
        source="rival of T15",
        parts=(part,),
        units=UNITS,
        controls=controls,
        measure=measure,
        compare=compare,
        prompts="enumerated",
    )


CLAIM = Claim(
    id="T15",
    system="tiny-recall",
    statement="A second head makes recall possible, at width 16 and 32; twice the width with one head does not.",
    source="tiny-recall, article on the model with repeats",
    parts=(
        Criterion(name="second_head", quantifier="most", margin=GAIN, unit="accuracy"),
        Criterion(name="width", quantifier="most", margin=HALF, direction="below", unit="accuracy"),
    ),
    units=UNITS,
    rivals=(
        _rival(
            "capacity",
            "Capacity makes recall possible: a single head recalls if the model is wide.",
            Criterion(name="width", quantifier="most", margin=RECALLS, unit="accuracy"),
            Control(name="capacity decides", kind="positive", plant=_CAPACITY, n=1),
            Control(name="the second head decides", kind="negative", plant=_SECOND_HEAD, n=1),
            _UNTRAINED,
        ),
        _rival(
            "width-too",
            "A second head alone does not do: at width 16 two heads do not recall.",
            Criterion(name="narrow", quantifier="most", margin=RECALLS, direction="below", unit="accuracy"),
            Control(name="width decides", kind="positive", plant=_CAPACITY, n=1),
            Control(name="the second head decides", kind="negative", plant=_SECOND_HEAD, n=1),
        ),
    ),
    controls=(
        Control(name="the second head decides", kind="positive", plant=_SECOND_HEAD, n=1),
        Control(name="capacity decides", kind="negative", plant=_CAPACITY, n=1),
        Control(name="a gain of margin size", kind="negative", plant=_AT_MARGIN, n=1),
        _UNTRAINED,
    ),
    measure=measure,
    compare=compare,
    prompts="enumerated",
)
CLAIMS.add(CLAIM.id, CLAIM)
