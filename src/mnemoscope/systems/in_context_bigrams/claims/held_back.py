"""B6 and B11: what is lost, and what is still learned, when some of the memories are held back for a while.

The three matrices of the induction head learn together (`memories`), or both W_K move only from step 300 on
(`memories-keys-late`), or W_O^2 does (`memories-output-late`); 300 is the source's step.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import N_MATCHED, ONSET_THRESHOLD, at_step, onset
from mnemoscope.systems.in_context_bigrams.claim_parts import MEMORY_SEEDS, NEVER, SGD, TEXTS, birth
from mnemoscope.systems.in_context_bigrams.presets import FREE_AT

ACCURACY = "accuracy_in_context"
OUTPUT, MATCH, PREVIOUS = "recall_copied_token", "matched_remapped_copy", "matched_previous_token"
TOGETHER = "memories"
LATE = {"keys_late": "memories-keys-late", "output_late": "memories-output-late"}
"""Configurations by what is held back."""
ALL = {name: Configuration(preset=name, recipe=SGD) for name in (TOGETHER, *LATE.values())}


def speed(subject: Subject, *, threshold: float = ONSET_THRESHOLD) -> dict[str, float]:
    """The step from which on in-context accuracy stays at the threshold or above (`onset`)."""
    return {"onset": onset(subject.trajectory, ACCURACY, threshold)}


def delays(measured: Mapping[str, Measured]) -> Measured:
    """B6: how many steps later accuracy comes if something is held back; `.._freed` counts from when it moves."""
    steps = {name: float(found["onset"]) for name, found in measured.items()}
    later = {what: steps[name] - steps[TOGETHER] for what, name in LATE.items()}
    freed = {f"{what}_freed": steps_later - FREE_AT for what, steps_later in later.items()}
    return later | freed | {f"{name} onset": step for name, step in steps.items()}


def when_freed(subject: Subject) -> dict[str, float]:
    """Accuracy, recall of W_O^2, and recalls of the keys less chance, at the step up to which something was frozen."""
    found = {
        name: at_step(subject.trajectory, variable, FREE_AT)
        for name, variable in {"accuracy": ACCURACY, "output": OUTPUT, "match": MATCH, "previous": PREVIOUS}.items()
    }
    return found | {name: (found[name] - 1 / N_MATCHED) / (1 - 1 / N_MATCHED) for name in ("match", "previous")}


def alone(measured: Mapping[str, Measured]) -> Measured:
    """B11: what W_O^2 learns alone, what accuracy that gives, and what the keys learn without it; beside it what all
    learn together.
    """
    joint, without_keys, without_output = (measured[name] for name in ALL)
    keys, joint_keys = ((float(of["match"]), float(of["previous"])) for of in (without_output, joint))
    return {
        "can": without_keys["output"],
        "not_enough": without_keys["accuracy"],
        "must": max(keys),
        "match": keys[0],
        "previous": keys[1],
        "joint output": joint["output"],
        "joint accuracy": joint["accuracy"],
        "joint keys": max(joint_keys),
        "joint keys, both": min(joint_keys),
    }


def _accuracies(name: str, *, together: float, keys_late: float, output_late: float) -> Case:
    """A control in which accuracy jumps to 1 at these steps."""
    steps = dict(zip(ALL, (together, keys_late, output_late), strict=True))
    return case(name, prescribe_course(ALL, {unit: {ACCURACY: step_course(step)} for unit, step in steps.items()}), n=1)


def memories_at(*, output: float, accuracy: float, match: float, previous: float) -> dict[str, dict[str, Course]]:
    """A planted training: these values while something is frozen, and 1 from then on; together all is learned by then.

    `output` and `accuracy` are recall of W_O^2 and in-context accuracy without the keys; `match` and `previous` are
    recalls of W_K^2 and W_K^1 without the output, among five candidates.
    """
    low = (
        dict.fromkeys((OUTPUT, ACCURACY, MATCH, PREVIOUS), 1.0),
        {OUTPUT: output, ACCURACY: accuracy, MATCH: 0.2, PREVIOUS: 0.2},
        {OUTPUT: 0.0, ACCURACY: 0.0, MATCH: match, PREVIOUS: previous},
    )
    return {
        unit: {name: step_course(FREE_AT + 10, low=value) for name, value in values.items()}
        for unit, values in zip(ALL, low, strict=True)
    }


def _stage(name: str, output: float, accuracy: float, match: float, previous: float) -> Case:
    planted = memories_at(output=output, accuracy=accuracy, match=match, previous=previous)
    return case(name, prescribe_course(ALL, planted), n=1)


_waits = _accuracies("as much later as it waits", together=200, keys_late=500, output_late=500)
_slower = _accuracies("slower than it waits", together=200, keys_late=540, output_late=580)
_same = _accuracies("at the same time", together=300, keys_late=300, output_late=300)
_one_slower = _accuracies("only one is slower", together=200, keys_late=180, output_late=500)
_none = _accuracies("never", together=NEVER, keys_late=NEVER, output_late=NEVER)

_output_first = _stage("the output alone is learned, the keys are not", 0.75, 0.2, 0.2, 0.2)
_keys_alone = _stage("the keys are learned without the output", 0.75, 0.2, 1.0, 0.2)
_suffices = _stage("the output suffices", 0.75, 0.75, 0.2, 0.2)
_nothing_alone = _stage("nothing is learned alone", 0.1, 0.1, 0.2, 0.2)
_at_margin = _stage("at the margins", 0.5, 0.5, 0.6, 0.6)

_B6 = birth(
    id="B6",
    statement="Learning all three memories together is faster than holding the keys back, or the output.",
    source="Bietti et al. 2023, Birth of a Transformer, as presented",
    units=ALL,
    measure=speed,
    compare=delays,
    explanation=TEXTS.explain("B6", free_at=FREE_AT, half=ONSET_THRESHOLD),
    develops=False,
    first_seed=MEMORY_SEEDS,
    parts=tuple(most(what, "above", 0.0, "steps") for what in LATE),
    factors={"threshold": (0.25, 0.75), "recipe": ("quick",)},
    controls=controls(positive=(_slower, _waits), negative=(_same, _one_slower, _none)),
)
B6 = _B6.against(
    _B6.rival(
        "wait",
        "Holding back makes it slower even from the moment at which all is free.",
        source="rival of B6: what waits is later anyhow",
        parts=tuple(most(f"{what}_freed", "above", 0.0, "steps") for what in LATE),
        controls=controls(positive=(_slower,), negative=(_waits, _same)),
    ),
)
_B11 = birth(
    id="B11",
    statement="W_O^2 can be learned before the keys and must be, and it does not suffice for good accuracy.",
    source="Bietti et al. 2023, Birth of a Transformer, recall with some matrices held back",
    units=ALL,
    first_seed=MEMORY_SEEDS,
    measure=when_freed,
    compare=alone,
    explanation=TEXTS.explain("B11", free_at=FREE_AT),
    develops=False,
    parts=(
        most("can", "above", ONSET_THRESHOLD, "recall"),
        most("not_enough", "below", ONSET_THRESHOLD, "accuracy"),
        most("must", "below", ONSET_THRESHOLD, "recall"),
    ),
    factors={"recipe": ("quick",)},
    controls=controls(positive=(_output_first,), negative=(_keys_alone, _suffices, _nothing_alone, _at_margin)),
)
B11 = _B11.against(
    _B11.rival(
        "keys-alone",
        "A key-query matrix is learned without W_O^2.",
        parts=(most("must", "above", ONSET_THRESHOLD, "recall"),),
        controls=controls(positive=(_keys_alone,), negative=(_output_first, _at_margin)),
    ),
)
for _claim in (B6, B11):
    CLAIMS.add(_claim.id, _claim)
