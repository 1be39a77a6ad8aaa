"""B5 and B10: in which order the memories of an induction head are learned, and which positions first.

B5, "the natural order of learning is W_O^2 first, W_K^2 next, W_K^1 last", is refuted if in most seeds a later one sets
in before an earlier one. Rivals: the same order holds for what W_K^1 knows of early positions; that comes before W_K^2.

B10, "W_K^1 stores early positions much faster than late ones", is refuted if in most seeds, of either model, the
memory of all positions takes less than a quarter longer than that of the first quarter of them.

Of each matrix the memory recall is measured, the share of associations that it retrieves (`analyses.memory_recall`)::

    W_O^2    token -> itself                        W_K^1         position -> the one before it, all positions
    W_K^2    trigger -> its remapped copy           W_K^1, early  the same among the first quarter of positions

With T(W) the first kept step from which recall stays at .5 or above, and the last step + 1 where there is none::

    B5    output_before_match = T(W_K^2) - T(W_O^2)            match_before_previous = T(W_K^1) - T(W_K^2)
          match_before_previous_early = T(W_K^1, early) - T(W_K^2), and previous_early_before_match the other way round
    B10   T(W_K^1) / T(W_K^1, early) - 1

A difference of 0 is none, so a tie of two matrices in the spacing of checkpoints (10 or 20 steps) counts on neither
side, and two that are never learned have no order. In B10 a memory that is there at step 0 counts as one that comes
at step 1, and two that never come count as equally fast. B5 is about seeds in which W_O^2 gets there at some step,
even if it does not stay there. Read from the trajectory: measures of every kept checkpoint, taken after training.

They show when recall passes a level, by default one half. They do not show that the one is needed for the other. They
compare unlike things: there are 65 tokens, 5 triggers and 127 positions, and among few candidates half is reached
sooner; among the early positions that is so by construction, as only early keys compete. Lower levels than one half
are near what 5 triggers give by chance, so B5 is tried at higher ones only.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Gate, Subject
from mnemoscope.judging import GATE, Case, Measured, case, controls, most
from mnemoscope.models.constructed import Course, following, jump
from mnemoscope.systems.in_context_bigrams.analyses.order import HALF, onset, tracked
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER, birth

MEMORIES = {
    "output": "recall_copied_token",
    "match": "recall_remapped_copy",
    "previous": "recall_previous_token",
    "previous_early": "recall_previous_token_early",
}
"""Measures of a trajectory by what is stored."""
JOINT = {"memories": Configuration(preset="memories")}
BOTH = {name: Configuration(preset=name) for name in ("memories", "memories-all")}
LONGER = 0.25
"""By which share all positions must take longer than the early ones."""


def order(subject: Subject, *, threshold: float = HALF) -> dict[str, float]:
    """How many steps later one memory sets in than another, beside the steps themselves; the gate looks at the largest
    recall of W_O^2.

    Args:
        subject: With a trajectory.
        threshold: Share of associations that counts as learned.

    Raises:
        InputError: It has no trajectory, or a measure is missing there.
    """
    found = _onsets(subject, threshold)
    early = found["previous_early"] - found["match"]
    return {
        **found,
        "output_before_match": found["match"] - found["output"],
        "match_before_previous": found["previous"] - found["match"],
        "match_before_previous_early": early,
        "previous_early_before_match": -early,
        GATE: float(tracked(subject.trajectory, MEMORIES["output"]).max()),
    }


def early_and_all(subject: Subject, *, threshold: float = HALF) -> dict[str, float]:
    """By which share longer all positions take than the early ones (`longer`), beside the steps.

    Raises:
        InputError: As `order`.
    """
    found = _onsets(subject, threshold)
    longer = max(found["previous"], 1) / max(found["previous_early"], 1) - 1
    return {"longer": longer, "previous": found["previous"], "previous_early": found["previous_early"]}


def by_unit(measured: Mapping[str, Measured]) -> Measured:
    """The effect of each configuration under its name; beside it the steps."""
    beside = {f"{name} {of}": found[of] for name, found in measured.items() for of in ("previous", "previous_early")}
    return {name: found["longer"] for name, found in measured.items()} | beside


def _onsets(subject: Subject, threshold: float) -> dict[str, float]:
    return {memory: onset(subject.trajectory, name, threshold) for memory, name in MEMORIES.items()}


def courses(output: float, match: float, previous_early: float, previous: float) -> dict[str, Course]:
    """A planted training: recall of each memory jumps from 0 to 1 at a step."""
    steps = {"output": output, "match": match, "previous_early": previous_early, "previous": previous}
    return {MEMORIES[memory]: jump(step) for memory, step in steps.items()}


def _training(name: str, *steps: float) -> Case:
    """A control in which the memories come at these steps, in the order of `courses`."""
    return case(name, following(JOINT, {"memories": courses(*steps)}), n=1)


def _two(name: str, *, first: tuple[float, float], second: tuple[float, float]) -> Case:
    """A control in which W_K^1 learns early positions and all of them at these steps, in both configurations."""
    planted = {unit: courses(50, 100, *steps) for unit, steps in zip(BOTH, (first, second), strict=True)}
    return case(name, following(BOTH, planted), n=1)


_in_order = _training("top down", 50, 100, 150, 300)
_early_before = _training("early positions before the match", 50, 150, 100, 300)
_reversed = _training("bottom up", 300, 200, 100, 150)
_together = _training("all at once", 100, 100, 100, 100)
_only_output = _training("the output alone", 50, NEVER, NEVER, NEVER)

_B5 = birth(
    id="B5",
    statement="The memories are learned from the top down: W_O^2 first, W_K^2 next, W_K^1 last.",
    source="Bietti et al. 2023, Birth of a Transformer, as presented",
    units=JOINT,
    measure=order,
    gate=Gate(statement="recalls half of the tokens or more from W_O^2 at some step", at_least=0.5),
    develops=False,
    parts=(most("output_before_match", "above", 0.0, "steps"), most("match_before_previous", "above", 0.0, "steps")),
    factors={"threshold": (0.75, 0.9)},
    controls=controls(positive=(_in_order, _early_before), negative=(_reversed, _together, _only_output)),
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
    measure=early_and_all,
    compare=by_unit,
    factors={"threshold": (0.25, 0.75)},
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
