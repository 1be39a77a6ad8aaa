"""E3: the change to the bigram is abrupt, comes when layer 1 learns to look one back, and layer 2 was right before.

Three courses are read from a trajectory: the share of the gap that is closed, attention of layer 1 to the previous
symbol, and the share that is closed if layer 1 is made to look one back. Each is dated by the step at which it is
midway between its mean during the unigram phase and its end. That phase is up to half of the step at which a quarter
of the final share is closed.
"""

import xarray as xr

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, controls, most
from mnemoscope.models.constructed import Course
from mnemoscope.systems.markov.analyses.course import halfway, onset, tracked
from mnemoscope.systems.markov.claim_parts import TEXTS, THREE, followed, markov_claim, units

WIDTH, WITH, BEFORE = 0.5, 0.2, 0.05
_RATIO = "ratio of steps"


def measure(subject: Subject) -> dict[str, float]:
    """Width of the change, distance of layer 1 from it, and the lead of layer 2 over layer 1, in shares of steps.

    `width` is the steps from a quarter to three quarters of the final share, by those to the quarter.
    """
    return dated(subject.trajectory)


def dated(course: xr.Dataset | None) -> dict[str, float]:
    """The same of a course."""
    found = tracked(course, "closed", "previous", "closed_previous")
    end = float(found.closed[-1])
    quarter, most_of_it = (max(onset(found, "closed", share * end), 1.0) for share in (0.25, 0.75))
    change, looks_back, ready = (
        halfway(found, name, before=quarter) for name in ("closed", "previous", "closed_previous")
    )
    return {
        "width": most_of_it / quarter - 1,
        "apart": looks_back / change - 1,
        "ready_before": 1 - ready / looks_back,
        "change": change,
        "looks_back": looks_back,
        "ready": ready,
    }


def _ramp(start: float, stop: float, *, low: float = 0.0, high: float = 0.8) -> Course:
    """The course of a measure that rises in a straight line."""
    return ((start, low), (stop, high))


def _trained(name: str, *, closed: Course, previous: Course, ready: Course) -> Case:
    return followed(name, {THREE: {"closed": closed, "previous": previous, "closed_previous": ready}})


_LATE, _EARLY = _ramp(650, 850), _ramp(300, 400)
_CLAIMED = _trained("layer 2 first", closed=_LATE, previous=_LATE, ready=_EARLY)
_REVERSED = _trained("layer 1 first", closed=_LATE, previous=_EARLY, ready=_LATE)
_TOGETHER = _trained("both at once", closed=_LATE, previous=_LATE, ready=_LATE)
_GRADUAL = _trained("a slope", closed=_ramp(0, 1400), previous=_ramp(0, 1400), ready=_EARLY)
_E3 = markov_claim(
    id="E3",
    statement="The change to the bigram is abrupt, is when layer 1 learns to look one back, and finds layer 2 right.",
    units=units(THREE),
    measure=measure,
    explanation=TEXTS.explain("E3", width=WIDTH, together=WITH, before=BEFORE),
    develops=False,
    parts=(
        most("width", "below", WIDTH, _RATIO),
        most("apart", "within", WITH, _RATIO),
        most("ready_before", "above", BEFORE, _RATIO),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_CLAIMED,), negative=(_REVERSED, _TOGETHER, _GRADUAL)),
)
E3 = _E3.against(
    _E3.rival(
        "layer-1",
        "Layer 1 looks one back before layer 2 is right.",
        parts=(most("ready_before", "below", -BEFORE, _RATIO),),
        controls=controls(positive=(_REVERSED,), negative=(_CLAIMED, _TOGETHER)),
    ),
)
CLAIMS.add(E3.id, E3)
