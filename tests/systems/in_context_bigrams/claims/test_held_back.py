"""B6 and B11: memories that are held back."""

from fnmatch import fnmatchcase

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed.stand_ins import prescribe_course, step_course
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER
from mnemoscope.systems.in_context_bigrams.claims.held_back import (
    ALL,
    B6,
    B11,
    LATE,
    alone,
    delays,
    memories_at,
    speed,
    when_freed,
)
from mnemoscope.systems.in_context_bigrams.presets import FREE_AT
from tests.systems.planting import effects_of, misbehaving, outcomes


def accuracies(*steps):
    return prescribe_course(
        ALL, {name: {"accuracy_in_context": step_course(at)} for name, at in zip(ALL, steps, strict=True)}
    )


def stages(**values):
    return prescribe_course(
        ALL, memories_at(**{"output": 1.0, "accuracy": 0.2, "match": 0.2, "previous": 0.2, **values})
    )


@pytest.mark.parametrize("claim", [B6, B11], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
    for value in claim.factors.get("threshold", ()):
        assert misbehaving(claim, threshold=value) == {}


@pytest.mark.parametrize("name", ["sgd", "quick"])
@pytest.mark.parametrize(("what", "held"), [("keys_late", "W_K"), ("output_late", "W_O")])
def test_the_step_is_the_first_at_which_all_move(what, held, name):
    """A checkpoint holds the weights before the step of its number, the last that are as they began."""
    recipe = ALL[LATE[what]].changed("recipe", name).spec(0).recipe
    (until,) = {freeze.stop for freeze in recipe.frozen if freeze.stop is not None}
    (pattern,) = {freeze.parameters for freeze in recipe.frozen if freeze.stop is not None}
    assert until == FREE_AT
    assert FREE_AT in recipe.checkpoints
    assert fnmatchcase(f"blocks.1.attn.{held}", pattern)
    assert not any(freeze.stop for freeze in ALL["memories"].spec(0).recipe.frozen)


def test_delays_by_hand():
    assert speed(accuracies(41, 0, 0)(0)["memories"]) == {"onset": 50}
    found = delays({"memories": {"onset": 200}, LATE["keys_late"]: {"onset": 310}, LATE["output_late"]: {"onset": 601}})
    assert (found["keys_late"], found["output_late"]) == (110, 401)
    assert (found["keys_late_freed"], found["output_late_freed"]) == (-190, 101)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((200, 520, 540), ["SUPPORTED", "SUPPORTED"]),
        ((200, 240, 520), ["SUPPORTED", "REFUTED"]),
        ((200, 180, 520), ["REFUTED", "REFUTED"]),
        ((280, 590, NEVER), ["SUPPORTED", "SUPPORTED"]),
        ((NEVER, 300, 300), ["REFUTED", "REFUTED"]),
        ((190, 490, 490), ["SUPPORTED", "INCONCLUSIVE"]),
    ],
)
def test_verdicts_on_planted_speeds(steps, expected):
    assert list(outcomes(B6, accuracies(*steps)).values()) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["SUPPORTED", "REFUTED"]),
        ({"output": 0.4}, ["REFUTED", "REFUTED"]),
        ({"accuracy": 0.6}, ["REFUTED", "REFUTED"]),
        ({"match": 0.8}, ["REFUTED", "SUPPORTED"]),
        ({"previous": 0.8}, ["REFUTED", "SUPPORTED"]),
        ({"match": 0.6}, ["INCONCLUSIVE", "INCONCLUSIVE"]),
    ],
)
def test_verdicts_on_planted_stages(values, expected):
    assert list(outcomes(B11, stages(**values)).values()) == expected


def test_stages_by_hand():
    found = effects_of(B11, stages(match=0.4, previous=0.28))
    expected = {"can": 1.0, "not_enough": 0.2, "must": 0.25, "match": 0.25, "previous": 0.1}
    joint = {"joint output": 1.0, "joint accuracy": 1.0, "joint keys": 1.0, "joint keys, both": 1.0}
    assert found == pytest.approx(expected | joint)
    after = when_freed(stages()(0)[LATE["keys_late"]])
    assert after == pytest.approx({"accuracy": 0.2, "output": 1.0, "match": 0.0, "previous": 0.0})
    each = {"output": 0.0, "accuracy": 0.0, "match": 0.0, "previous": 0.0}
    only_without_keys = {"memories": each, LATE["keys_late"]: {**each, "match": 1.0}, LATE["output_late"]: each}
    assert alone(only_without_keys)["must"] == 0


def test_runs_that_were_not_tracked_are_refused():
    for measure in (speed, when_freed):
        with pytest.raises(InputError, match="mnemoscope evaluate --checkpoints"):
            measure(untrained(ALL)(0)[LATE["keys_late"]])
