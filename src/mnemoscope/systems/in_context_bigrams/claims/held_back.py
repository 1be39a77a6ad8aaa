"""B6 and B11: what is lost, and what is still learned, when some of the memories are held back for a while.

The three matrices of the induction head learn together (`memories`), or both W_K move only from step 150 on
(`memories-keys-late`), or W_O^2 does (`memories-output-late`).

B6, "joint learning is faster", is refuted if in most seeds in-context accuracy of a model in which something was held
back reaches one half no later than where all is learned together. Effect: T(held back) - T(together), with T the first
kept step from which accuracy stays at .5 or above, and the last step + 1 where there is none. Anything that waits is
likely to be later, so a rival asks for more: later even if the 150 steps of waiting are not counted. Checkpoints are 10
steps apart up to step 300 and 20 from there on, so what sets in after it is read up to 10 steps later than the rest,
which favours that rival a little.

B11, "W_O^2 can and must be learned before the key-query matrices, but does not suffice", looks at the last moment at
which something is frozen, step 150, and is refuted if in most seeds one of these fails:

    can         recall of W_O^2 with both W_K frozen, above .9
    not_enough  in-context accuracy there, below .5
    must        the larger recall of W_K^1 (all positions) and W_K^2 with W_O^2 frozen, below .5

Rival: without W_O^2 the keys are learned all the same, one of them at least. The effect is then above .5.

"Must" is read as: while W_O^2 is frozen, neither matrix is learned. Recall of W_K^2 is over the five triggers, of which
one in five is right by chance. Read from the trajectory: measures of every kept checkpoint, taken after training.

They show what these recipes learn in these orders. They do not show that a matrix could not be learned alone in more
steps, nor at another step size: "must" is about 150 steps. A frozen W_O^2 is not zero but random, and a random
matrix also carries a gradient to the keys.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.judging import Case, Measured, case, controls, most
from mnemoscope.models.constructed import Course, following, jump
from mnemoscope.systems.in_context_bigrams.analyses.order import HALF, at_step, onset
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER, birth

HELD_UNTIL = 150
"""The step from which on all matrices move."""
ACCURACY = "accuracy_in_context"
OUTPUT, MATCH, PREVIOUS = "recall_copied_token", "recall_remapped_copy", "recall_previous_token"
TOGETHER = "memories"
LATE = {"keys_late": "memories-keys-late", "output_late": "memories-output-late"}
"""Configurations by what is held back."""
STAGED = {name: Configuration(preset=name) for name in LATE.values()}
ALL = {TOGETHER: Configuration(preset=TOGETHER), **STAGED}


def speed(subject: Subject, *, threshold: float = HALF) -> dict[str, float]:
    """From which step on in-context accuracy stays at the threshold or above (`onset`).

    Raises:
        InputError: There is no trajectory, or a measure is missing there.
    """
    return {"onset": onset(subject.trajectory, ACCURACY, threshold)}


def delays(measured: Mapping[str, Measured]) -> Measured:
    """B6: how many steps later accuracy comes if something is held back; `.._freed` counts from when it moves."""
    steps = {name: float(found["onset"]) for name, found in measured.items()}
    later = {what: steps[name] - steps[TOGETHER] for what, name in LATE.items()}
    freed = {f"{what}_freed": steps_later - HELD_UNTIL for what, steps_later in later.items()}
    return later | freed | {f"{name} onset": step for name, step in steps.items()}


def when_freed(subject: Subject) -> dict[str, float]:
    """Accuracy and recalls at the step up to which something was frozen.

    Raises:
        InputError: As `speed`, or there is no checkpoint at that step.
    """
    names = {"accuracy": ACCURACY, "output": OUTPUT, "match": MATCH, "previous": PREVIOUS}
    return {name: at_step(subject.trajectory, variable, HELD_UNTIL) for name, variable in names.items()}


def alone(measured: Mapping[str, Measured]) -> Measured:
    """B11: what W_O^2 learns alone, what accuracy that gives, and what the keys learn without it."""
    without_keys, without_output = (measured[name] for name in LATE.values())
    return {
        "can": without_keys["output"],
        "not_enough": without_keys["accuracy"],
        "must": max(float(without_output["match"]), float(without_output["previous"])),
        "match": without_output["match"],
        "previous": without_output["previous"],
    }


def _accuracies(name: str, *, together: float, keys_late: float, output_late: float) -> Case:
    """A control in which accuracy jumps to 1 at these steps."""
    steps = dict(zip(ALL, (together, keys_late, output_late), strict=True))
    return case(name, following(ALL, {unit: {ACCURACY: jump(step)} for unit, step in steps.items()}), n=1)


def memories_at(*, output: float, accuracy: float, match: float, previous: float) -> dict[str, dict[str, Course]]:
    """A planted training: these values while something is frozen, and 1 from then on.

    Args:
        output: Recall of W_O^2 without the keys.
        accuracy: In-context accuracy without the keys.
        match: Recall of W_K^2 without the output.
        previous: Recall of W_K^1 without the output.
    """
    low = (
        {OUTPUT: output, ACCURACY: accuracy, MATCH: 0.2, PREVIOUS: 0.0},
        {OUTPUT: 0.0, ACCURACY: 0.0, MATCH: match, PREVIOUS: previous},
    )
    return {
        unit: {name: jump(HELD_UNTIL + 10, low=value) for name, value in values.items()}
        for unit, values in zip(STAGED, low, strict=True)
    }


def _stage(name: str, output: float, accuracy: float, match: float, previous: float) -> Case:
    planted = memories_at(output=output, accuracy=accuracy, match=match, previous=previous)
    return case(name, following(STAGED, planted), n=1)


_waits = _accuracies("as much later as it waits", together=190, keys_late=340, output_late=340)
_slower = _accuracies("slower than it waits", together=200, keys_late=480, output_late=520)
_same = _accuracies("at the same time", together=300, keys_late=300, output_late=300)
_one_slower = _accuracies("only one is slower", together=200, keys_late=180, output_late=500)
_none = _accuracies("never", together=NEVER, keys_late=NEVER, output_late=NEVER)

_output_first = _stage("the output alone is learned, the keys are not", 1.0, 0.1, 0.2, 0.1)
_keys_alone = _stage("the keys are learned without the output", 1.0, 0.1, 1.0, 0.1)
_suffices = _stage("the output suffices", 1.0, 0.9, 0.2, 0.1)
_nothing_alone = _stage("nothing is learned alone", 0.1, 0.1, 0.2, 0.1)
_at_margin = _stage("at the margins", 0.9, 0.5, 0.5, 0.5)

_B6 = birth(
    id="B6",
    statement="Learning all three memories together is faster than holding the keys back, or the output.",
    source="Bietti et al. 2023, Birth of a Transformer, as presented",
    units=ALL,
    measure=speed,
    compare=delays,
    develops=False,
    parts=tuple(most(what, "above", 0.0, "steps") for what in LATE),
    factors={"threshold": (0.25, 0.75)},
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
    units=STAGED,
    measure=when_freed,
    compare=alone,
    develops=False,
    parts=(
        most("can", "above", 0.9, "recall"),
        most("not_enough", "below", HALF, "accuracy"),
        most("must", "below", HALF, "recall"),
    ),
    controls=controls(positive=(_output_first,), negative=(_keys_alone, _suffices, _nothing_alone, _at_margin)),
)
B11 = _B11.against(
    _B11.rival(
        "keys-alone",
        "A key-query matrix is learned without W_O^2.",
        parts=(most("must", "above", HALF, "recall"),),
        controls=controls(positive=(_keys_alone,), negative=(_output_first, _at_margin)),
    ),
)
for _claim in (B6, B11):
    CLAIMS.add(_claim.id, _claim)
