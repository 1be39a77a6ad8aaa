"""E4: the unigram solution delays the bigram one.

With doubly stochastic chains the unigram says nothing. They might be easier all the same, so that a third model first
learns the unigram, on other chains, and then the doubly stochastic ones: if that solution delays the other, these take
longer than from the start. Dated by the first step from which half of the gap is closed.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, Measured, controls, most
from mnemoscope.models.constructed import step_course
from mnemoscope.systems.markov.analyses.course import onset
from mnemoscope.systems.markov.claim_parts import AFTER, BALANCED, HALF, TEXTS, THREE, followed, markov_claim, units
from mnemoscope.systems.markov.presets import UNIGRAM_STEPS

UNITS = units(THREE, BALANCED, AFTER)
LONGER = 1.15
_RATIO = "ratio of steps"


def measure(subject: Subject, *, level: float = HALF) -> dict[str, float]:
    """The step from which a share of the gap is closed."""
    return {"step": onset(subject.trajectory, "closed", level)}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """By how many times longer it takes where the unigram says something, and after the unigram was learned."""
    free, balanced, after = (float(measured[name]["step"]) for name in UNITS)
    alone = max(balanced, 1.0)
    return {
        "earlier": free / alone,
        "delayed": (after - UNIGRAM_STEPS) / alone,
        "step_rows": free,
        "step_balanced": balanced,
        "step_after": after - UNIGRAM_STEPS,
    }


def _trained(name: str, rows: float, balanced: float, after: float) -> Case:
    steps = {THREE: rows, BALANCED: balanced, AFTER: UNIGRAM_STEPS + after}
    return followed(name, {unit: {"closed": step_course(step, high=0.8)} for unit, step in steps.items()})


_DELAYED = _trained("delayed both ways", 800, 550, 750)
_EASIER = _trained("easier", 800, 550, 400)
_ALIKE = _trained("alike", 600, 600, 600)
_LATER = _trained("later without the unigram", 500, 800, 1000)
_E4 = markov_claim(
    id="E4",
    statement="The unigram solution delays the bigram one: where the unigram says nothing, it comes earlier.",
    units=UNITS,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("E4", longer=LONGER, unigram_steps=UNIGRAM_STEPS),
    develops=False,
    parts=(most("earlier", "above", LONGER, _RATIO), most("delayed", "above", LONGER, _RATIO)),
    factors={"level": (0.25,), "recipe": ("published",)},
    controls=controls(positive=(_DELAYED,), negative=(_EASIER, _ALIKE, _LATER)),
)
E4 = _E4.against(
    _E4.rival(
        "easier",
        "Doubly stochastic chains are merely easier: they take no longer after the unigram was learned.",
        parts=(most("earlier", "above", LONGER, _RATIO), most("delayed", "below", 1.0, _RATIO)),
        controls=controls(positive=(_EASIER,), negative=(_DELAYED, _ALIKE, _LATER)),
    ),
)
CLAIMS.add(E4.id, E4)
