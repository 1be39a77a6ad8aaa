"""I3 and I4: what changes, and how smoothly, when parts of the circuit are held ideal from the first step.

All models have one head in layer 1. The step of the change is read from what training logged, with its clamps.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, Measured, controls, most
from mnemoscope.models.constructed import Course
from mnemoscope.systems.induction_formation.analyses.courses import change, plateau
from mnemoscope.systems.induction_formation.claim_parts import (
    LOG2,
    ONE_HEAD,
    RATIO,
    TEXTS,
    course,
    formation_claim,
    later,
    planted,
    units,
    waits,
)

HELD = {
    "copy": "formation-copy",
    "layer_1": "formation-layer-1",
    "match": "formation-match",
    "layer_1_copy": "formation-layer-1-copy",
    "key_copy": "formation-key-copy",
}
"""Conditions by what is held."""
LEFT = {"A": "match", "B": "key_copy", "C": "layer_1_copy"}
"""Conditions by the only subcircuit that is left to learn."""
UNITS = units(ONE_HEAD, *HELD.values())
ABRUPT, MORE = 0.5, 0.1
_SHARE = "share of the way to half the loss"


def measure(subject: Subject, *, level: float = 0.5) -> dict[str, float]:
    """The step of the change, and the share of the plateau."""
    found = course(subject)
    return {"change": change(found, level=level), "plateau": plateau(found)["share"]}


def by_condition(measured: Mapping[str, Measured]) -> Measured:
    """The gain in time by each part that is held, the bottleneck, and the plateaus that are left."""
    steps = {name: float(each["change"]) for name, each in measured.items()}
    forward = {f"{held}_forward": later(steps, ONE_HEAD, name) for held, name in HELD.items()}
    left = {part: HELD[held] for part, held in LEFT.items()}
    slower = {
        part: min(later(steps, left[part], other) for other in left.values() if other != left[part]) for part in left
    }
    both, alone = steps[HELD["copy"]], steps[left["B"]] + steps[left["C"]]
    return {
        **forward,
        "copy_first": forward["copy_forward"] - forward["layer_1_forward"],
        "different": abs(forward["copy_forward"] - forward["layer_1_forward"]),
        **{f"{part}_slowest": value for part, value in slower.items()},
        "interaction": (both - alone) / max(1.0, both),
        "base_plateau": measured[ONE_HEAD]["plateau"],
        **{f"{held}_plateau": measured[name]["plateau"] for held, name in HELD.items()},
        **{f"{name} change": step for name, step in steps.items()},
    }


def _courses(name: str, **courses: Course) -> Case:
    """A control: a course for every condition."""
    names = {"one_head": ONE_HEAD, **HELD}
    return planted(name, UNITS, {names[held]: each for held, each in courses.items()})


_WAIT, _SLOPE = waits(800, 150), waits(0, 300)
_BOTTLENECK = _courses(
    "C is the bottleneck", one_head=waits(1200, 200), copy=waits(900, 150), layer_1=waits(500, 150),
    match=waits(0, 40), layer_1_copy=waits(0, 300), key_copy=waits(0, 60),
)  # fmt: skip
_ROUTING = _courses(
    "B is the bottleneck", one_head=waits(1200, 200), copy=waits(900, 150), layer_1=waits(500, 150),
    match=waits(0, 40), layer_1_copy=waits(0, 60), key_copy=waits(0, 300),
)  # fmt: skip
_SUM = _courses(
    "B and C take the sum of both", one_head=waits(600, 100), copy=waits(250, 150), layer_1=waits(400, 100),
    match=waits(0, 40), layer_1_copy=waits(0, 450), key_copy=waits(0, 60),
)  # fmt: skip
_COPY = _courses(
    "copy is what it waits for", one_head=waits(1200, 200), copy=waits(0, 150), layer_1=waits(900, 150),
    match=waits(0, 60), layer_1_copy=waits(0, 60), key_copy=waits(0, 60),
)  # fmt: skip
_NOTHING = _courses("nothing helps", **dict.fromkeys(("one_head", *HELD), _WAIT))
_ALL_SMOOTH = _courses("all are smooth", **dict.fromkeys(("one_head", *HELD), _SLOPE))
_NEVER = _courses("no change", **dict.fromkeys(("one_head", *HELD), waits(1e6, 100)))

_I3 = formation_claim(
    id="I3",
    statement=(
        "Holding one subcircuit ideal brings the change forward, by different amounts, and leaves a plateau; "
        "routing and match interact, and match is the bottleneck."
    ),
    units=UNITS,
    measure=measure,
    compare=by_condition,
    explanation=TEXTS.explain("I3", abrupt=ABRUPT, more=MORE),
    develops=False,
    prompts="own",
    parts=(
        most("copy_forward", "above", RATIO, LOG2),
        most("layer_1_forward", "above", RATIO, LOG2),
        most("different", "above", RATIO, LOG2),
        most("copy_plateau", "above", ABRUPT, _SHARE),
        most("layer_1_plateau", "above", ABRUPT, _SHARE),
        most("interaction", "above", MORE, "share of the steps"),
        most("C_slowest", "above", RATIO, LOG2),
    ),
    factors={"level": (0.25, 0.75), "recipe": ("published",)},
    controls=controls(positive=(_BOTTLENECK,), negative=(_ROUTING, _SUM, _COPY, _NOTHING, _ALL_SMOOTH, _NEVER)),
)
I3 = _I3.against(
    _I3.rival(
        "routing",
        "Routing is the bottleneck.",
        parts=(most("B_slowest", "above", RATIO, LOG2),),
        controls=controls(positive=(_ROUTING,), negative=(_BOTTLENECK, _NOTHING, _NEVER)),
    ),
    _I3.rival(
        "copy",
        "Perfect copy brings it forward more than perfect layer 1.",
        parts=(most("copy_first", "above", RATIO, LOG2),),
        controls=controls(positive=(_COPY,), negative=(_BOTTLENECK, _NOTHING, _NEVER)),
    ),
    _I3.rival(
        "separate",
        "Routing and match take no longer together than one after the other.",
        parts=(most("interaction", "below", MORE, "share of the steps"),),
        controls=controls(positive=(_SUM,), negative=(_BOTTLENECK,)),
    ),
)
_I4 = formation_claim(
    id="I4",
    statement="With one subcircuit left to learn the course is smooth, and with all three it waits on a plateau.",
    units=UNITS,
    measure=measure,
    compare=by_condition,
    explanation=TEXTS.explain("I4", abrupt=ABRUPT),
    develops=False,
    prompts="own",
    parts=(
        most("base_plateau", "above", ABRUPT, _SHARE),
        *(most(f"{held}_plateau", "below", ABRUPT, _SHARE) for held in LEFT.values()),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_BOTTLENECK, _ROUTING), negative=(_NOTHING, _ALL_SMOOTH, _NEVER)),
)
I4 = _I4.against(
    _I4.rival(
        "match",
        "A plateau is left where match alone has to be learned.",
        parts=(most("layer_1_copy_plateau", "above", ABRUPT, _SHARE),),
        controls=controls(positive=(_NOTHING,), negative=(_BOTTLENECK, _ALL_SMOOTH)),
    ),
)
for _claim in (I3, I4):
    CLAIMS.add(_claim.id, _claim)
