"""I5: what delays the change, more classes or more labels, and through which subcircuit.

The claim says classes; the rivals say labels, and both. I5-subcircuits puts the same question where one subcircuit is
left to learn: match alone, which has to do with classes, and copy alone, which has to do with labels.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.claims import Case, Measured, controls, most
from mnemoscope.systems.induction_formation.analyses.courses import change
from mnemoscope.systems.induction_formation.claim_parts import (
    BASE,
    LOG2,
    RATIO,
    TEXTS,
    course,
    formation_claim,
    later,
    planted,
    waits,
)
from mnemoscope.systems.induction_formation.presets import MORE

COPY_LEFT, MATCH_LEFT = "formation-match", "formation-layer-1-copy"


def _units(*presets: str) -> dict[str, Configuration]:
    """Each preset as it is, with more classes, and with more labels."""
    changed: dict[str, tuple[tuple[str, int], ...]] = {"": (), **MORE}
    return {
        f"{preset} more {what}" if what else preset: Configuration(preset=preset, changes=changes)
        for preset in presets
        for what, changes in changed.items()
    }


WHOLE, ALONE = _units(BASE), _units(COPY_LEFT, MATCH_LEFT)


def measure(subject: Subject, *, level: float = 0.5) -> dict[str, float]:
    """The step of the change."""
    return {"change": change(course(subject), level=level)}


def delays(measured: Mapping[str, Measured]) -> Measured:
    """The delay of the change by four times as many classes, and labels."""
    steps = {name: float(each["change"]) for name, each in measured.items()}
    found = {what: later(steps, f"{BASE} more {what}", BASE) for what in MORE}
    return {**found, **{f"{name} change": step for name, step in steps.items()}}


def delays_alone(measured: Mapping[str, Measured]) -> Measured:
    """The same where match, or copy, is all that is left to learn."""
    steps = {name: float(each["change"]) for name, each in measured.items()}
    return {
        f"{what}_{part}": later(steps, f"{preset} more {what}", preset)
        for part, preset in (("match", MATCH_LEFT), ("copy", COPY_LEFT))
        for what in MORE
    }


def _planted(name: str, units: Mapping[str, Configuration], **waiting: float) -> Case:
    """A control: by unit the step up to which it waits, 300 where none is given."""
    return planted(name, units, {unit: waits(waiting.get(_key(unit), 300), 100) for unit in units})


def _key(unit: str) -> str:
    """`classes`, `labels`, or for a subcircuit `classes_match` and so on."""
    preset, _, what = unit.partition(" more ")
    part = {BASE: "", COPY_LEFT: "_copy", MATCH_LEFT: "_match"}[preset]
    return what + part


_CLASSES, _LABELS = _planted("classes", WHOLE, classes=600), _planted("labels", WHOLE, labels=600)
_BOTH, _NEITHER = _planted("both", WHOLE, classes=600, labels=600), _planted("neither", WHOLE)
_NEVER = _planted("never", WHOLE, **{"": 1e6, "classes": 1e6, "labels": 1e6})
_I5 = formation_claim(
    id="I5",
    statement="More classes delay the change, and more labels hardly do.",
    units=WHOLE,
    measure=measure,
    compare=delays,
    explanation=TEXTS.explain("I5"),
    develops=False,
    prompts="own",
    parts=(most("classes", "above", RATIO, LOG2), most("labels", "within", RATIO, LOG2)),
    factors={"level": (0.25, 0.75), "recipe": ("published",)},
    controls=controls(positive=(_CLASSES,), negative=(_LABELS, _BOTH, _NEITHER, _NEVER)),
)
I5 = _I5.against(
    _I5.rival(
        "labels",
        "More labels delay the change, and more classes hardly do.",
        parts=(most("labels", "above", RATIO, LOG2), most("classes", "within", RATIO, LOG2)),
        controls=controls(positive=(_LABELS,), negative=(_CLASSES, _BOTH, _NEITHER)),
    ),
    _I5.rival(
        "both",
        "Both delay it.",
        parts=(most("classes", "above", RATIO, LOG2), most("labels", "above", RATIO, LOG2)),
        controls=controls(positive=(_BOTH,), negative=(_CLASSES, _LABELS, _NEITHER)),
    ),
)
_OWN = _planted("each through its own", ALONE, classes_match=600, labels_copy=600)
_CROSSED = _planted("each through the other", ALONE, classes_copy=600, labels_match=600)
_NONE, _CLASSES_ONLY = _planted("neither", ALONE), _planted("classes alone", ALONE, classes_match=600)
_OWN_CLAIM = formation_claim(
    id="I5-subcircuits",
    statement="Classes delay match and not copy, and labels delay copy and not match.",
    units=ALONE,
    measure=measure,
    compare=delays_alone,
    explanation=TEXTS.explain("I5-subcircuits"),
    develops=False,
    prompts="own",
    parts=(
        most("classes_match", "above", RATIO, LOG2),
        most("classes_copy", "within", RATIO, LOG2),
        most("labels_copy", "above", RATIO, LOG2),
        most("labels_match", "within", RATIO, LOG2),
    ),
    factors={"level": (0.25, 0.75), "recipe": ("published",)},
    controls=controls(positive=(_OWN,), negative=(_CROSSED, _NONE, _CLASSES_ONLY)),
)
I5_SUBCIRCUITS = _OWN_CLAIM.against(
    _OWN_CLAIM.rival(
        "labels-free",
        "More labels delay neither.",
        parts=(most("labels_copy", "within", RATIO, LOG2), most("labels_match", "within", RATIO, LOG2)),
        controls=controls(positive=(_NONE, _CLASSES_ONLY), negative=(_OWN, _CROSSED)),
    ),
)
for _claim in (I5, I5_SUBCIRCUITS):
    CLAIMS.add(_claim.id, _claim)
