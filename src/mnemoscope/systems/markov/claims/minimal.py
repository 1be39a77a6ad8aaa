"""E2-minimal and E3-minimal: phases and order in the minimal model, whose two layers are a vector and a matrix.

They are about draws, each of which is one training. Margins are those of E2 and E3. In the authors' theory the second
layer comes first; a rival asks whether the two rates decide that.
"""

from collections.abc import Mapping
from functools import cache, partial

import xarray as xr

from mnemoscope import CLAIMS
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models.constructed import Course, prescribed, step_course
from mnemoscope.systems.markov.analyses.course import simpler_first
from mnemoscope.systems.markov.claim_parts import TASK, TEXTS, THREE, markov_claim, units
from mnemoscope.systems.markov.claims.change import BEFORE, dated
from mnemoscope.systems.markov.claims.phases import E2, LASTS, QUARTER, courses, passed
from mnemoscope.systems.markov.minimal import DISTANCE_RATE, N_STEPS, SCORE_RATE, train_minimal

FASTER = 100
"""The factor on the rate of layer 1 at which the rival expects that layer first."""
RATES = (0.3, 3.0, 10.0)
_minimal = partial(markov_claim, replicate="draw", develops=False)


def measure_phases(draw: int, *, distance_rate: float = DISTANCE_RATE) -> dict[str, float]:
    """The measures of E2."""
    return passed(_course(draw, distance_rate), simpler_first(TASK))


def measure_order(draw: int, *, distance_rate: float = DISTANCE_RATE) -> dict[str, float]:
    """The order of both layers, at a rate of layer 1 and at a hundred times that."""
    return _orders(_course(draw, distance_rate), _course(draw, FASTER * distance_rate))


@cache  # both claims ask for it
def _course(draw: int, distance_rate: float) -> xr.Dataset:
    """The course of one training; a slower one takes more steps."""
    n_steps = round(N_STEPS / min(1.0, distance_rate))
    return train_minimal(TASK, draw, distance_rate=distance_rate, n_steps=n_steps)[1]


def _orders(*found: xr.Dataset) -> dict[str, float]:
    """The lead of layer 2 over layer 1 in both courses, and the steps of both."""
    kept = ("ready_before", "looks_back", "ready")
    return {
        f"{prefix}{name}": value
        for prefix, course in zip(("", "fast_"), found, strict=True)
        for name, value in dated(course).items()
        if name in kept
    }


# ---- what is planted


def _passing(name: str, *, between: float = 0.0, **steps: float) -> Case:
    """A control: the predictors are reached at these steps."""
    return case(name, partial(_phases, courses(tuple(steps), steps, between=between)), n=1)


def _ordered(name: str, *, layers: tuple[float, float], fast: tuple[float, float]) -> Case:
    """A control: the steps at which layer 1 looks one back and layer 2 is right, at both rates."""
    return case(name, partial(_order, layers, fast), n=1)


def _phases(measures: Mapping[str, Course], number: int) -> dict[str, Measured]:
    return {"draw": passed(_followed(measures), simpler_first(TASK))}


def _order(layers: tuple[float, float], fast: tuple[float, float], number: int) -> dict[str, Measured]:
    return {"draw": _orders(_steps(*layers), _steps(*fast))}


def _steps(looks_back: float, ready: float) -> xr.Dataset:
    """A course in which both layers come at a step."""
    at = {"closed": max(looks_back, ready), "previous": looks_back, "closed_previous": ready}
    return _followed({name: step_course(step, high=0.8) for name, step in at.items()})


def _followed(measures: Mapping[str, Course]) -> xr.Dataset:
    """Courses at the steps at which models of three symbols are followed."""
    return prescribed(units(THREE)[THREE], measures, "trajectory")


_TURN = _passing("in turn", uniform=0, unigram=100, bigram=700)
_SOON = _passing("through the unigram at once", uniform=0, unigram=100, bigram=150)
_PAST = _passing("past the unigram", uniform=0, unigram=100, bigram=700, between=0.15)
_BACK = _passing("the bigram first", uniform=0, bigram=100, unigram=700)
_E2 = _minimal(
    id="E2-minimal",
    statement="Training of the minimal model passes three phases: uniform, unigram, bigram.",
    measure=measure_phases,
    explanation=TEXTS.explain("E2-minimal", lasts=LASTS, quarter=QUARTER, score_rate=SCORE_RATE, n_steps=N_STEPS),
    parts=E2.parts,
    factors={"distance_rate": RATES},
    controls=controls(positive=(_TURN,), negative=(_SOON, _PAST, _BACK)),
)
E2_MINIMAL = _E2.against(
    _E2.rival(
        "past",
        "It passes the unigram at a distance, without a phase of it.",
        parts=E2.rivals[0].parts,
        controls=controls(positive=(_PAST,), negative=(_TURN,)),
    ),
)
_EARLY, _LATE = (400, 650), (650, 400)
_SECOND = _ordered("layer 2 first at both rates", layers=_LATE, fast=_LATE)
_FIRST = _ordered("layer 1 first at both rates", layers=_EARLY, fast=_EARLY)
_BY_RATE = _ordered("layer 1 first where it is fast", layers=_LATE, fast=_EARLY)
_TOGETHER = _ordered("both at once", layers=(500, 500), fast=(500, 500))
_BEFORE = most("ready_before", "above", BEFORE, "ratio of steps")
_E3 = _minimal(
    id="E3-minimal",
    statement="In the minimal model layer 2 is right before layer 1 looks one back.",
    measure=measure_order,
    explanation=TEXTS.explain("E3-minimal", before=BEFORE, faster=FASTER, score_rate=SCORE_RATE, n_steps=N_STEPS),
    parts=(_BEFORE,),
    factors={"distance_rate": RATES},
    controls=controls(positive=(_SECOND, _BY_RATE), negative=(_FIRST, _TOGETHER)),
)
E3_MINIMAL = _E3.against(
    _E3.rival(
        "rates",
        "The two rates decide: at a hundred times the rate layer 1 looks one back first.",
        parts=(_BEFORE, most("fast_ready_before", "below", -BEFORE, "ratio of steps")),
        controls=controls(positive=(_BY_RATE,), negative=(_SECOND, _FIRST, _TOGETHER)),
    ),
)
for _claim in (E2_MINIMAL, E3_MINIMAL):
    CLAIMS.add(_claim.id, _claim)
