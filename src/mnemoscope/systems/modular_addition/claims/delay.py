"""C4: the sums that were held out are known long after those that train, and only with weight decay.

Read from what training logged every ten steps: accuracies on sequences of either split.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Gate, Subject
from mnemoscope.claims import GATE, Case, Measured, case, controls, most
from mnemoscope.models import logged
from mnemoscope.models.constructed import prescribe_course, step_course
from mnemoscope.systems.modular_addition.claim_parts import ACCURACY, SOFTMAX, TEXTS, addition_claim, units
from mnemoscope.systems.modular_addition.presets import NO_DECAY

WITHOUT = "without decay"
UNITS = {**units(SOFTMAX), WITHOUT: Configuration(preset=SOFTMAX, changes=NO_DECAY)}
KNOWN, LONG = 0.9, 2
"""The accuracy that counts as known, and the ratio of steps that counts as long."""


def measure(subject: Subject, *, level: float = KNOWN) -> dict[str, float]:
    """Steps at which both splits reach an accuracy of `level`, and their accuracies at the end.

    A split that never does counts as known at twice the last step.
    """
    found = {}
    for split in ("train", "test"):
        course = logged(subject.progress, f"{split}_answer")
        first = course.step.where(course >= level).min().fillna(2 * float(course.step[-1]))
        found |= {f"{split}_step": float(first), f"{split}_end": float(course[-1])}
    return found


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The delay of the held-out sums, as a ratio of steps, and their accuracy at the end without weight decay."""
    one, other = measured[SOFTMAX], measured[WITHOUT]
    return {
        "later": float(one["test_step"]) / max(1.0, float(one["train_step"])),
        "without": other["test_end"],
        "with": one["test_end"],
        "train_step": one["train_step"],
        "test_step": one["test_step"],
        GATE: min(float(one["train_end"]), float(other["train_end"])),
    }


def _trained(name: str, *, test: float, without: float) -> Case:
    """A control: what trains is known from step 100 on, what is held out from these steps on."""
    train = step_course(100, low=0.03)
    courses = {
        unit: {"train_answer": train, "test_answer": step_course(step, low=0.03)}
        for unit, step in ((SOFTMAX, test), (WITHOUT, without))
    }
    return case(name, prescribe_course(UNITS, courses, followed="progress"), n=1)


_NEVER = 1e6
_LATE, _BOTH = _trained("late, with decay alone", test=400, without=_NEVER), _trained("late", test=400, without=800)
_SOON, _NONE = _trained("at once", test=110, without=_NEVER), _trained("never", test=_NEVER, without=_NEVER)
_C4 = addition_claim(
    id="C4",
    statement="Held-out sums are known long after those that train, and only with weight decay.",
    units=UNITS,
    gate=Gate(
        statement=f"answers {ACCURACY:.0%} of the sums that train rightly, with and without decay", at_least=ACCURACY
    ),
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C4", known=KNOWN),
    prompts="own",
    develops=False,
    parts=(
        most("later", "above", LONG, "ratio of steps"),
        most("with", "above", KNOWN, "accuracy"),
        most("without", "below", KNOWN, "accuracy"),
    ),
    factors={"level": (0.5, 0.99)},
    controls=controls(positive=(_LATE,), negative=(_BOTH, _SOON, _NONE)),
)
C4 = _C4.against(
    _C4.rival(
        "anyway",
        "Held-out sums are known without weight decay too.",
        parts=(most("without", "above", KNOWN, "accuracy"),),
        controls=controls(positive=(_BOTH,), negative=(_LATE,)),
    ),
)
CLAIMS.add(C4.id, C4)
