"""R10, the causal sibling of R7: whether later hops come forward if attention within pairs is there from the start."""

import math
from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.analyses import threshold_onset
from mnemoscope.claims import GATE, Case, Measured, case, controls, most
from mnemoscope.models import logged
from mnemoscope.models.constructed import prescribe_course
from mnemoscope.systems.retrieval.claim_parts import (
    CHAINS,
    FOLLOWS,
    TEXTS,
    WHOLE_CHAIN,
    retrieval,
    task_of,
)
from mnemoscope.systems.retrieval.claims.emergence import HALF, losses
from mnemoscope.systems.retrieval.presets import HELD_IDEAL, HELD_SEEDS

HELD = "attention within pairs ideal"
UNITS = {**WHOLE_CHAIN, HELD: Configuration(preset=CHAINS, changes=HELD_IDEAL)}
FORWARD, PASSED_ON = 0.25, 0.5
"""Binary logarithm of a factor of 1.19 in steps; the share of the first hop's gain that counts as passed on."""


def measure(subject: Subject, *, level: float = HALF) -> dict[str, float]:
    """Steps from which the logged loss of every symbol (`x1` and so on) stays below a level, and the largest loss left.

    Interpolated between logged steps; twice the last step where there is none.
    """
    courses = {part: logged(subject.progress, f"test_loss_{part}") for part in task_of(subject).parts}
    found = {}
    for part, course in courses.items():
        onset = float(threshold_onset(course, level, direction="fall").onset)
        found[part] = 2 * float(course.step[-1]) if math.isnan(onset) else onset
    return {**found, GATE: max(float(course[-1]) for course in courses.values())}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """By how much the symbols come earlier with attention within pairs held ideal."""
    free, held = measured[CHAINS], measured[HELD]
    gains = {part: float(free[part]) - float(held[part]) for part in ("x1", "x2", "x3")}
    return {
        "first_forward": math.log2(max(1.0, float(free["x1"])) / max(1.0, float(held["x1"]))),
        **{f"{part}_passed_on": gains[part] - PASSED_ON * gains["x1"] for part in ("x2", "x3")},
        **{f"{part}_gain": gain for part, gain in gains.items()},
        GATE: max(float(free[GATE]), float(held[GATE])),
    }


def _trained(name: str, *held: float) -> Case:
    """A control: the symbols are learned at steps 350, 650 and 850, and at these with the attention held."""
    courses = {
        unit: {f"test_{name}": course for name, course in losses(*steps).items()}
        for unit, steps in {CHAINS: (350, 650, 850), HELD: held}.items()
    }
    return case(name, prescribe_course(UNITS, courses, followed="progress"), n=1)


_ALL, _NONE = _trained("all come forward", 200, 500, 700), _trained("none comes forward", 350, 650, 850)
_FIRST, _LATER = _trained("the first alone", 200, 650, 850), _trained("later ones alone", 350, 400, 500)
_TWO = _trained("the last stays", 200, 500, 850)
_STEPS = "steps"
_R10 = retrieval(
    id="R10",
    statement="Later hops wait for attention within pairs: ideal from the first step, it brings all forward.",
    units=UNITS,
    first_seed=HELD_SEEDS[0],
    last_seed=HELD_SEEDS[-1],
    gate=FOLLOWS,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("R10", forward=FORWARD, passed_on=PASSED_ON),
    prompts="own",
    develops=False,
    parts=(
        most("first_forward", "above", FORWARD, "log₂ of steps"),
        most("x2_passed_on", "above", 0.0, _STEPS),
        most("x3_passed_on", "above", 0.0, _STEPS),
    ),
    factors={"level": (0.25, 0.65)},
    controls=controls(positive=(_ALL,), negative=(_NONE, _FIRST, _LATER, _TWO)),
)
R10 = _R10.against(
    _R10.rival(
        "first-alone",
        "It brings the first hop forward, and the last one hardly.",
        parts=(
            most("first_forward", "above", FORWARD, "log₂ of steps"),
            most("x3_passed_on", "below", 0.0, _STEPS),
        ),
        controls=controls(positive=(_FIRST, _TWO), negative=(_ALL, _NONE, _LATER)),
    ),
    _R10.rival(
        "not-waited-for",
        "The first hop does not wait for it.",
        parts=(most("first_forward", "within", FORWARD, "log₂ of steps"),),
        controls=controls(positive=(_NONE, _LATER), negative=(_ALL, _FIRST, _TWO)),
    ),
)
CLAIMS.add(R10.id, R10)
