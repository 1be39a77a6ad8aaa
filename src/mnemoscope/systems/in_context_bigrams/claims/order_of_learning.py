"""B5 and B10: in which order the memories of an induction head are learned, and which positions first.

Among few candidates half is reached sooner, so both claims are judged on recall among as many candidates in every
matrix. Three other readings are reported, and tried as factors::

    matched         recall among five candidates, at a level above what chance passes       (judged)
    half            recall among all candidates at .5, or where guessing ends if that is more
    nine tenths     the same at .9
    beyond chance   recall among all candidates, where guessing ends, for each matrix on its own

With five triggers one that is lost or won moves W_K^2 by a fifth: a factor asks with twenty triggers.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Gate, Subject
from mnemoscope.analyses import chance_threshold
from mnemoscope.claims import GATE, Case, Measured, case, controls, most
from mnemoscope.core import one_of
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import fixed_triggers
from mnemoscope.systems.in_context_bigrams.analyses.memories import LEAST
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import N_MATCHED, ONSET_THRESHOLD, onset, tracked
from mnemoscope.systems.in_context_bigrams.claim_parts import MATRICES_FOLLOWED, MEMORY_SEEDS, NEVER, SGD, TEXTS, birth
from mnemoscope.systems.in_context_bigrams.presets import HELD_SEEDS

MEMORIES = {
    "output": "copied_token",
    "match": "remapped_copy",
    "previous": "previous_token",
    "previous_early": "previous_token_early",
    "previous_late": "previous_token_late",
}
"""Measures of a trajectory by what is stored, after `recall_` or `matched_`."""
IN_ORDER = ("output", "match", "previous", "previous_early")
READINGS = ("matched", "half", "nine tenths", "beyond chance")
JOINT = {"memories": Configuration(preset="memories", recipe=SGD)}
BOTH = {name: Configuration(preset=name, recipe=SGD) for name in ("memories", "memories-all")}
LONGER = 0.25
"""By which share late positions must take longer than the early ones."""
MANY = 20
"""Triggers of the factor."""


def order(subject: Subject, *, reading: str = "matched") -> dict[str, float]:
    """Differences in steps between the onsets of memories, beside the steps themselves and the differences by other
    readings.

    The gate looks at the largest recall of W_O^2; `reading` is one of `READINGS`.
    """
    by_reading = {name: onsets(subject, name, IN_ORDER) for name in dict.fromkeys((reading, *READINGS))}
    found = by_reading.pop(reading)
    beside = {f"{what}, {name}": value for name, steps in by_reading.items() for what, value in _later(steps).items()}
    gate = float(tracked(subject.trajectory, f"recall_{MEMORIES['output']}").max())
    return {**found, **_later(found), **beside, GATE: gate}


def _later(steps: Mapping[str, float]) -> dict[str, float]:
    early = steps["previous_early"] - steps["match"]
    return {
        "output_before_match": steps["match"] - steps["output"],
        "match_before_previous": steps["previous"] - steps["match"],
        "match_before_previous_early": early,
        "previous_early_before_match": -early,
    }


def early_and_late(subject: Subject, *, reading: str = "matched") -> dict[str, float]:
    """The share by which late positions take longer than early ones (`longer`), beside the steps."""
    found = onsets(subject, reading, ("previous", "previous_early", "previous_late"))
    return {"longer": max(found["previous_late"], 1) / max(found["previous_early"], 1) - 1, **found}


def by_unit(measured: Mapping[str, Measured]) -> Measured:
    """The effect of each configuration under its name; beside it the steps."""
    beside = {
        f"{name} {of}": found[of]
        for name, found in measured.items()
        for of in ("previous", "previous_early", "previous_late")
    }
    return {name: found["longer"] for name, found in measured.items()} | beside


def onsets(subject: Subject, reading: str, memories: tuple[str, ...]) -> dict[str, float]:
    """The step from which each memory is there, by a reading."""
    one_of("reading", reading, READINGS)
    n = {memory: n_associations(subject)[memory] for memory in memories}
    if reading == "matched":
        guessed = max(chance_threshold(count, 1 / min(N_MATCHED, count)) for count in n.values())
        level = max((1 + 1 / N_MATCHED) / 2, guessed)
        return {m: onset(subject.trajectory, f"matched_{MEMORIES[m]}", level) for m in memories}
    least = {"half": ONSET_THRESHOLD, "nine tenths": 0.9, "beyond chance": 0.0}[reading]
    levels = {memory: max(least, chance_threshold(count, 1 / count)) for memory, count in n.items()}
    return {m: onset(subject.trajectory, f"recall_{MEMORIES[m]}", levels[m]) for m in memories}


def n_associations(subject: Subject) -> dict[str, int]:
    """The number of associations of each memory; there are as many candidates."""
    task = subject.task
    quarter = max(LEAST, task.n_ctx // 4) - 1
    return {
        "output": task.d_vocab,
        "match": len(fixed_triggers(task)) or task.d_vocab,
        "previous": task.n_ctx - 1,
        "previous_early": quarter,
        "previous_late": quarter,
    }


def courses(output: float, match: float, early: float, previous: float, *, guessed: float = 0.0) -> dict[str, Course]:
    """A planted training: recall of each memory jumps to 1 at a step, from 0, or W_K^2 from what is guessed."""
    steps = {"output": output, "match": match, "previous_early": early, "previous": previous, "previous_late": previous}
    low = {"match": guessed}
    return {
        f"{kind}_{MEMORIES[memory]}": step_course(step, low=low.get(memory, 0.0))
        for memory, step in steps.items()
        for kind in ("recall", "matched")
    }


def _training(name: str, *steps: float, guessed: float = 0.0) -> Case:
    """A control in which the memories come at these steps, in the order of `courses`."""
    return case(name, prescribe_course(JOINT, {"memories": courses(*steps, guessed=guessed)}), n=1)


def _two(name: str, *, first: tuple[float, float], second: tuple[float, float]) -> Case:
    """A control in which W_K^1 learns early positions and late ones at these steps, in both configurations."""
    planted = {unit: courses(50, 100, *steps) for unit, steps in zip(BOTH, (first, second), strict=True)}
    return case(name, prescribe_course(BOTH, planted), n=1)


_RECALL = (
    f"{MATRICES_FOLLOWED} A matrix recalls an association if the right output scores highest. So that few outputs are "
    "no easier than many, the right one competes with four others as if drawn at random: chance is .2. W_O of layer 2 "
    "(W_O²) maps each of the 65 tokens to itself, W_K of layer 2 (W_K²) leads each of the five triggers to its copy "
    "through layer 1, W_K of layer 1 (W_K¹) leads each position to the one before; early positions are the first "
    "quarter among themselves, late ones the last."
)
_in_order = _training("top down", 50, 100, 150, 300)
_guessed = _training("top down, three of five triggers guessed from the start", 50, 100, 150, 300, guessed=0.6)
_early_before = _training("early positions before the match", 50, 150, 100, 300)
_reversed = _training("bottom up", 300, 200, 100, 150)
_together = _training("all at once", 100, 100, 100, 100)
_only_output = _training("the output alone", 50, NEVER, NEVER, NEVER)

_B5 = birth(
    id="B5",
    statement="The memories are learned from the top down: W_O^2 first, W_K^2 next, W_K^1 last.",
    source="Bietti et al. 2023, Birth of a Transformer, as presented",
    units=JOINT,
    first_seed=MEMORY_SEEDS,
    last_seed=HELD_SEEDS - 1,
    measure=order,
    explanation=TEXTS.explain("B5"),
    gate=Gate(statement="recalls half of the tokens or more from W_O^2 at some step", at_least=0.5),
    develops=False,
    parts=(most("output_before_match", "above", 0.0, "steps"), most("match_before_previous", "above", 0.0, "steps")),
    factors={"reading": READINGS[1:], "recipe": ("quick",), "task.n_triggers": (MANY,)},
    controls=controls(positive=(_in_order, _guessed, _early_before), negative=(_reversed, _together, _only_output)),
)
B5 = _B5.against(
    _B5.rival(
        "early",
        "The same order holds where W_K^1 is asked of early positions only.",
        source="rival of B5: what W_K^1 takes long for are late positions",
        parts=(
            most("output_before_match", "above", 0.0, "steps"),
            most("match_before_previous_early", "above", 0.0, "steps"),
        ),
        controls=controls(positive=(_in_order,), negative=(_early_before, _together)),
    ),
    _B5.rival(
        "keys-reversed",
        "W_K^1 learns early positions before W_K^2 learns triggers.",
        source="rival of B5: the same keys, the other way round",
        parts=(most("previous_early_before_match", "above", 0.0, "steps"),),
        controls=controls(positive=(_early_before,), negative=(_in_order, _together)),
    ),
)
B10 = birth(
    id="B10",
    statement="W_K^1 stores early positions much faster than late ones.",
    source="Bietti et al. 2023, Birth of a Transformer, recall during training",
    parts=tuple(most(name, "above", LONGER, "share of the steps that early ones take") for name in BOTH),
    units=BOTH,
    measure=early_and_late,
    compare=by_unit,
    explanation=TEXTS.explain("B10"),
    factors={"reading": ("half", "beyond chance")},
    controls=controls(
        positive=(
            _two("twice as long", first=(100, 200), second=(200, 400)),
            _two("late positions never", first=(100, NEVER), second=(200, NEVER)),
        ),
        negative=(
            _two("a margin longer", first=(200, 250), second=(240, 300)),
            _two("longer in one model", first=(100, 200), second=(200, 200)),
            _two("neither ever", first=(NEVER, NEVER), second=(NEVER, NEVER)),
        ),
    ),
    develops=False,
)
for _claim in (B5, B10):
    CLAIMS.add(_claim.id, _claim)
