"""E2 and E6: training passes through the simpler predictors in turn, from uniform on.

Read from trajectories: at every checkpoint the nearest of the uniform predictor and the n-grams.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import xarray as xr

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, case, controls, most
from mnemoscope.models.constructed import Course, prescribe_course
from mnemoscope.systems.markov.analyses.course import in_order, nearest, simpler_first, tracked
from mnemoscope.systems.markov.claim_parts import TEXTS, THREE, TRIGRAMS, markov_claim, units

LASTS, QUARTER = 2.0, 0.25
_STEPS, _SHARE, _YES = "ratio of steps", "share of the way", "1: yes"


def measure(subject: Subject) -> dict[str, float]:
    """If phases come in turn, and of each simpler n-gram how long its phase lasts and how near it came.

    A phase lasts as the ratio of its end to its beginning, in steps after the first kept one. `near_unigram` is the
    smallest divergence from the unigram by that at the start of training.
    """
    return passed(subject.trajectory, simpler_first(subject.task))


def passed(course: xr.Dataset | None, names: Sequence[str]) -> dict[str, float]:
    """The same of a course, for predictors from the simplest on."""
    found = tracked(course, *(f"kl_{name}" for name in names))
    closest, steps = nearest(found, names), found.step.values.tolist()
    after_start = float(steps[1])
    result = {"in_turn": float(in_order(closest, names))}
    for name, later in pairwise(names[1:]):
        begins = next((s for s, n in zip(steps, closest, strict=True) if n == name), float(steps[-1]))
        ends = next((s for s, n in zip(steps, closest, strict=True) if n == later), float(steps[-1]))
        kl = found[f"kl_{name}"]
        result[f"lasts_{name}"] = ends / max(begins, after_start)
        result[f"near_{name}"] = float(kl.min()) / float(kl[0])
    return result


def courses(names: Sequence[str], steps: Mapping[str, float], *, between: float = 0.0) -> dict[str, Course]:
    """Divergences in which each predictor is reached at a step, and left for the next.

    Before and after that the divergence is .1 for each predictor in between; `between` is what is left at best of those
    but the first and the last.
    """
    at = [steps[name] for name in names]
    return {
        f"kl_{name}": tuple(
            (step + side, 0.1 * abs(place - i) + (between if 0 < i < len(names) - 1 else 0.0))
            for place, step in enumerate(at)
            for side in ((0,) if place == len(at) - 1 else (0, at[place + 1] - step - 1))
        )
        for i, name in enumerate(names)
    }


def _trained(unit: str, name: str, *, between: float = 0.0, **steps: float) -> Case:
    planted = {unit: courses(tuple(steps), steps, between=between)}
    return case(name, prescribe_course(units(unit), planted), n=1)


_TURN = _trained(THREE, "in turn", uniform=0, unigram=100, bigram=700)
_SOON = _trained(THREE, "through the unigram at once", uniform=0, unigram=100, bigram=150)
_PAST = _trained(THREE, "past the unigram", uniform=0, unigram=100, bigram=700, between=0.15)
_BACK = _trained(THREE, "the bigram first", uniform=0, bigram=100, unigram=700)
_E2 = markov_claim(
    id="E2",
    statement="Training passes three phases: uniform, unigram, bigram.",
    units=units(THREE),
    measure=measure,
    explanation=TEXTS.explain("E2", lasts=LASTS, quarter=QUARTER),
    develops=False,
    parts=(
        most("in_turn", "above", 0.5, _YES),
        most("lasts_unigram", "above", LASTS, _STEPS),
        most("near_unigram", "below", QUARTER, _SHARE),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_TURN,), negative=(_SOON, _PAST, _BACK)),
)
E2 = _E2.against(
    _E2.rival(
        "past",
        "Training passes the unigram at a distance, without a phase of it.",
        parts=(most("near_unigram", "above", QUARTER, _SHARE),),
        controls=controls(positive=(_PAST,), negative=(_TURN,)),
    ),
)
_FOUR = _trained(TRIGRAMS, "in turn", uniform=0, unigram=100, bigram=400, trigram=700)
_SKIPPED = _trained(TRIGRAMS, "bigram skipped", uniform=0, unigram=100, bigram=600, trigram=650)
_STUCK = _trained(TRIGRAMS, "bigram to the end", uniform=0, unigram=100, bigram=500, trigram=1e6)
_E6 = markov_claim(
    id="E6",
    statement="Where two symbols decide, training passes uniform, unigram, bigram and trigram in turn.",
    units=units(TRIGRAMS),
    measure=measure,
    explanation=TEXTS.explain("E6", lasts=LASTS, quarter=QUARTER),
    develops=False,
    parts=(most("in_turn", "above", 0.5, _YES), most("lasts_bigram", "above", 1.25, _STEPS)),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_FOUR,), negative=(_SKIPPED, _STUCK)),
)
E6 = _E6.against(
    _E6.rival(
        "stuck",
        "Training ends at the bigram, or before it.",
        parts=(most("in_turn", "below", 0.5, _YES),),
        controls=controls(positive=(_STUCK,), negative=(_FOUR,)),
    ),
)
for _claim in (E2, E6):
    CLAIMS.add(_claim.id, _claim)
