"""B7 and B9: what is learned first, and how much that depends on which tokens are triggers.

B7 is about associative memories, B7-generic the same sentence about the generic model of two layers.
"""

import math
from collections.abc import Mapping

from mnemoscope import CLAIMS, Claim, Configuration, Subject
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import onset, tracked
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER, SGD, TEXTS, birth

SOURCE = "Bietti et al. 2023, Birth of a Transformer"
CLASSES = ("in_context", "global")
RATIO = 0.25
"""In powers of two: a factor of about 1.19."""
MEMORIES = {"memories-all": Configuration(preset="memories-all", recipe=SGD)}
GENERIC = {"birth-2-layers": Configuration(preset="birth-2-layers")}
FREQUENCIES = {name: Configuration(preset=name) for name in ("birth-fixed", "birth-rare")}


def falls(subject: Subject, *, fallen: float = 0.5) -> dict[str, float]:
    """The steps at which the losses have fallen by a share of their fall (`in_context`, `global`).

    `later` is by how many steps the former comes later.
    """
    steps = {name: _fall(subject, f"loss_{name}", fallen) for name in CLASSES}
    return {**steps, "later": steps["in_context"] - steps["global"]}


def _fall(subject: Subject, name: str, fallen: float) -> float:
    """The first step from which a loss stays below what is left after that share of its fall."""
    values = tracked(subject.trajectory, name)
    first, smallest = float(values[0]), float(values.min())
    if smallest == first:
        return float(values.step[-1]) + 1
    return onset(subject.trajectory, name, first - fallen * (first - smallest), direction="fall")


def reached(subject: Subject, *, threshold: float = 0.5) -> dict[str, float]:
    """The step from which on in-context accuracy stays at the threshold or above (`onset`)."""
    return {"onset": onset(subject.trajectory, "accuracy_in_context", threshold)}


def ratio(measured: Mapping[str, Measured]) -> Measured:
    """B9: log2 of how many times as late rare triggers are (`rare_later`), its absolute value, and both onsets."""
    frequent, rare = (float(measured[name]["onset"]) for name in FREQUENCIES)
    later = math.log2(max(rare, 1) / max(frequent, 1))
    return {"difference": abs(later), "rare_later": later, "frequent": frequent, "rare": rare}


def losses(in_context: float, elsewhere: float) -> dict[str, Course]:
    """A planted training: loss falls from 4 to 1 nats in context, and from 3 to 2 elsewhere, at these steps."""
    return {
        "loss_in_context": step_course(in_context, low=4.0, high=1.0),
        "loss_global": step_course(elsewhere, low=3.0, high=2.0),
    }


def accuracy(step: float) -> dict[str, Course]:
    """A planted training: in-context accuracy rises from .1 to .9 at a step."""
    return {"accuracy_in_context": step_course(step, low=0.1, high=0.9)}


def _falling(units: Mapping[str, Configuration], name: str, *steps: float) -> Case:
    """A control of B7: the steps of the loss in context and of that elsewhere."""
    return case(name, prescribe_course(units, {unit: losses(*steps) for unit in units}), n=1)


def _global_first(id: str, model: str, units: Mapping[str, Configuration], *, other_recipe: str) -> Claim:
    """B7 about a model."""
    return birth(
        id=id,
        statement=f"Global bigrams are learned before in-context ones, by {model}.",
        source=f"{SOURCE}, loss on both along training",
        develops=False,
        parts=(most("later", "above", 0.0, "steps"),),
        units=units,
        measure=falls,
        explanation=TEXTS.explain(id),
        factors={"fallen": (0.25, 0.75), "recipe": (other_recipe,)},
        controls=controls(
            positive=(_falling(units, "200 steps earlier", 300, 100),),
            negative=(
                _falling(units, "at the same time", 100, 100),
                _falling(units, "later", 100, 200),
                _falling(units, "none falls", NEVER, NEVER),
            ),
        ),
    )


def _rising(name: str, *, frequent: float, rare: float) -> Case:
    """A control of B9: the steps of accuracy."""
    trained = dict(zip(FREQUENCIES, (accuracy(frequent), accuracy(rare)), strict=True))
    return case(name, prescribe_course(FREQUENCIES, trained), n=1)


_RATIO = "log2 of a ratio of steps"
_equal = _rising("equally fast", frequent=300, rare=300)
_frequent_first = _rising("frequent ones twice as fast", frequent=200, rare=400)
_rare_first = _rising("rare ones twice as fast", frequent=400, rare=200)
_a_margin = table("a margin apart", {"birth-fixed": {"onset": 400.0}, "birth-rare": {"onset": 400 * 2**RATIO}})

B7 = _global_first("B7", "associative memories", MEMORIES, other_recipe="quick")
B7_GENERIC = _global_first("B7-generic", "two generic layers", GENERIC, other_recipe="long")
_B9 = birth(
    id="B9",
    statement="Models whose fixed triggers are the most frequent tokens, and less frequent ones, differ in speed.",
    source=f"{SOURCE}, loss along training for two sets of triggers",
    develops=False,
    units=FREQUENCIES,
    measure=reached,
    compare=ratio,
    explanation=TEXTS.explain("B9"),
    parts=(most("difference", "above", RATIO, _RATIO),),
    factors={"threshold": (0.25, 0.75), "recipe": ("long",)},
    controls=controls(positive=(_frequent_first, _rare_first), negative=(_equal, _a_margin)),
)
B9 = _B9.against(
    _B9.rival(
        "frequent-first",
        "Frequent triggers are learned faster.",
        source=SOURCE,
        parts=(most("rare_later", "above", RATIO, _RATIO),),
        controls=controls(positive=(_frequent_first,), negative=(_equal, _rare_first)),
    ),
    _B9.rival(
        "rare-first",
        "Rare triggers are learned faster.",
        source=SOURCE,
        parts=(most("rare_later", "below", -RATIO, _RATIO),),
        controls=controls(positive=(_rare_first,), negative=(_equal, _frequent_first)),
    ),
)
for _claim in (B7, B7_GENERIC, B9):
    CLAIMS.add(_claim.id, _claim)
