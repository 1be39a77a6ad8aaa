"""I4-near: how smoothly the last subcircuit is learned, counted from the first loss near log 2.

I4 counts from step 0, and its fit takes the first fall, from all labels to the two that are shown, for a wait. Here
those steps do not count, and the models are of other seeds.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Gate, Subject
from mnemoscope.claims import GATE, Case, Measured, controls, most
from mnemoscope.models.constructed import Course
from mnemoscope.systems.induction_formation.analyses.courses import PLATEAU, change, plateau
from mnemoscope.systems.induction_formation.claim_parts import (
    ONE_HEAD,
    TEXTS,
    course,
    formation_claim,
    planted,
    units,
    waits,
)
from mnemoscope.systems.induction_formation.claims.held_ideal import ABRUPT, HELD, LEFT
from mnemoscope.systems.induction_formation.presets import NEAR_SEEDS

_NAMES = {ONE_HEAD: "whole", **{HELD[held]: part for part, held in LEFT.items()}}
"""Conditions, by what is left to learn."""
UNITS = units(*_NAMES)
NEAR = 0.1
"""The share of log 2 within which a loss counts as near it."""
_SHARE = "share of the way to half the loss"


def measure(subject: Subject, *, near: float = NEAR) -> dict[str, float]:
    """The share of the plateau, and the step of the change as a share of the training."""
    found = course(subject)
    return {"plateau": plateau(found, near=near)["share"], "changed": change(found) / float(found.step[-1])}


def by_part(measured: Mapping[str, Measured]) -> Measured:
    """The plateau with all to learn and with one part left, and the latest change."""
    return {
        **{f"{name}_plateau": measured[unit]["plateau"] for unit, name in _NAMES.items()},
        GATE: max(float(each["changed"]) for each in measured.values()),
    }


def _courses(name: str, **courses: Course) -> Case:
    """A control: a course for every condition, by what is left to learn."""
    return planted(name, UNITS, {unit: courses[part] for unit, part in _NAMES.items()})


def _falls_first(delay: float, width: float) -> Course:
    """A loss that falls to log 2 within 30 steps, and then waits and falls."""
    return ((0, 1.8), (20, 1.2), (29, PLATEAU), *((step + 30, loss) for step, loss in waits(delay, width)))


_WAIT, _SMOOTH = _falls_first(300, 100), _falls_first(0, 60)
_TRUE = _courses("all three wait, one does not", whole=_WAIT, A=_SMOOTH, B=_SMOOTH, C=_SMOOTH)
_AT_ONCE = _courses("the last falls in two logged steps", whole=_WAIT, A=waits(0, 20), B=_SMOOTH, C=waits(0, 100))
_COPY = _courses("copy waits", whole=_WAIT, A=_WAIT, B=_SMOOTH, C=_SMOOTH)
_MATCH = _courses("match waits", whole=_WAIT, A=_SMOOTH, B=_SMOOTH, C=_WAIT)
_ROUTING = _courses("routing waits", whole=_WAIT, A=_SMOOTH, B=_WAIT, C=_SMOOTH)
_ALL_WAIT = _courses("all wait", **dict.fromkeys(_NAMES.values(), _WAIT))
_ALL_SMOOTH = _courses("all are smooth", **dict.fromkeys(_NAMES.values(), _SMOOTH))
_WAITED_FOR = {"A": ("copy", _COPY), "B": ("routing", _ROUTING), "C": ("match", _MATCH)}
_CLAIM = formation_claim(
    id="I4-near",
    statement=(
        "Counted from the first loss near log 2, the course with one subcircuit left is smooth, "
        "and with all three it waits on a plateau."
    ),
    units=UNITS,
    first_seed=NEAR_SEEDS[0],
    gate=Gate(statement="comes to half of log 2 under every condition", at_most=1.0),
    measure=measure,
    compare=by_part,
    explanation=TEXTS.explain("I4-near", near=NEAR, abrupt=ABRUPT),
    develops=False,
    prompts="own",
    parts=(
        most("whole_plateau", "above", ABRUPT, _SHARE),
        *(most(f"{part}_plateau", "below", ABRUPT, _SHARE) for part in LEFT),
    ),
    factors={"near": (0.05, 0.2), "recipe": ("published",)},
    controls=controls(positive=(_TRUE, _AT_ONCE), negative=(_COPY, _MATCH, _ROUTING, _ALL_WAIT, _ALL_SMOOTH)),
)
CLAIM = _CLAIM.against(
    *(
        _CLAIM.rival(
            word,
            f"A plateau is left where {word} alone has to be learned.",
            parts=(most(f"{part}_plateau", "above", ABRUPT, _SHARE),),
            controls=controls(positive=(waiting, _ALL_WAIT), negative=(_TRUE, _ALL_SMOOTH)),
        )
        for part, (word, waiting) in _WAITED_FOR.items()
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
