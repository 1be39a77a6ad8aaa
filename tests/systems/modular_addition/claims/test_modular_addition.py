"""C1 to C6: their controls, and what decides them."""

from dataclasses import replace

import pytest

from mnemoscope import InputError
from mnemoscope.models.constructed import prescribe_course
from mnemoscope.systems.modular_addition.claim_parts import (
    CONSTANT,
    SOFTMAX,
    TASK,
    accuracy,
    clock_by_hand,
    lookup_by_hand,
)
from mnemoscope.systems.modular_addition.claims import algorithms, circles, delay, key_frequencies, one_map, transition
from mnemoscope.systems.modular_addition.presets import MIXES
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving

CLAIMS = (algorithms.C1, transition.C2, circles.C3, delay.C4, key_frequencies.C5, one_map.C6)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def decided(claim, measured):
    return [verdict(one, claim.compare(measured)).outcome for one in (claim, *claim.rivals)]


CLOCK = {"symmetricity": 0.4, "irrelevance": 0.85, "form": 0.15, "few": 0.97, "accuracy": 1.0}
PIZZA = {"symmetricity": 0.99, "irrelevance": 0.45, "form": -0.1, "few": 0.95, "accuracy": 1.0}


@pytest.mark.parametrize(
    ("softmax", "constant", "expected"),
    [
        ({}, {}, ["SUPPORTED", "REFUTED"]),
        ({"symmetricity": 0.98}, {}, ["REFUTED", "SUPPORTED"]),
        ({"irrelevance": 0.5}, {}, ["REFUTED", "REFUTED"]),
        ({"form": -0.1}, {}, ["REFUTED", "REFUTED"]),
        ({"few": 0.4}, {}, ["REFUTED", "REFUTED"]),
        ({}, {"irrelevance": 0.7}, ["REFUTED", "REFUTED"]),
        ({}, {"form": 0.1}, ["REFUTED", "REFUTED"]),
        ({"accuracy": 0.9}, {}, ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
    ],
)
def test_what_decides_c1(softmax, constant, expected):
    assert decided(algorithms.C1, {SOFTMAX: {**CLOCK, **softmax}, CONSTANT: {**PIZZA, **constant}}) == expected


def test_a_table_passes_for_a_clock_by_both_numbers_alone():
    found = algorithms.measure(on(lookup_by_hand(), TASK))
    parts = {part.name: part for part in algorithms.C1.criteria}
    met = {
        name: (value > parts[f"clock_{name}"].margin) == (parts[f"clock_{name}"].direction == "above")
        for name, value in found.items()
        if f"clock_{name}" in parts
    }
    assert met == {"symmetricity": True, "irrelevance": True, "form": False, "few": False}


def along(symmetric, irrelevant=(0.4, 0.4, 0.4, 0.8, 0.8, 0.8)):
    rows = zip(MIXES, symmetric, irrelevant, strict=True)
    return {name: {"symmetricity": s, "irrelevance": i, "accuracy": 1.0} for name, s, i in rows}


@pytest.mark.parametrize(
    ("symmetric", "expected"),
    [
        ((0.98, 0.98, 0.98, 0.5, 0.5, 0.5), ["SUPPORTED", "REFUTED"]),
        ((0.98, 0.98, 0.98, 0.98, 0.5, 0.5), ["SUPPORTED", "REFUTED"]),
        ((0.98, 0.9, 0.8, 0.65, 0.55, 0.46), ["REFUTED", "SUPPORTED"]),
        ((0.98, 0.98, 0.98, 0.98, 0.98, 0.97), ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_c2(symmetric, expected):
    assert decided(transition.C2, along(symmetric)) == expected


def test_a_step_and_a_line_leave_each_other_as_much():
    """In six places at equal distances: 1 - .771 either way."""
    places = [0, 0.2, 0.4, 0.6, 0.8, 1]
    for values, sign in (([0, 0, 0, 1, 1, 1], 1), (places, -1)):
        assert transition.step_less_line(places, values) == pytest.approx(sign * (1 - 27 / 35))
    assert transition.step_less_line(places, [2] * 6) == 0


@pytest.mark.parametrize(
    ("softmax", "constant", "expected"),
    [
        ((0.95, 0.9), (0.95, 0.9), ["SUPPORTED", "REFUTED"]),
        ((0.95, 0.9), (0.95, 0.2), ["REFUTED", "SUPPORTED"]),
        ((0.4, 0.9), (0.95, 0.9), ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_c3(softmax, constant, expected):
    found = {
        unit: {"few": few, "round": round_, "accuracy": 1.0}
        for unit, (few, round_) in ((SOFTMAX, softmax), (CONSTANT, constant))
    }
    assert decided(circles.C3, found) == expected


def logged(test_step, without_step):
    train = ((99.5, 0.03), (100, 1.0))
    courses = {
        unit: {"train_answer": train, "test_answer": ((step - 0.5, 0.03), (step, 1.0))}
        for unit, step in ((SOFTMAX, test_step), (delay.WITHOUT, without_step))
    }
    subjects = prescribe_course(delay.UNITS, courses, followed="progress")(0)
    return {name: delay.measure(each) for name, each in subjects.items()}


@pytest.mark.parametrize(
    ("test_step", "without_step", "expected"),
    [
        (400, 9999, ["SUPPORTED", "REFUTED"]),
        (400, 500, ["REFUTED", "SUPPORTED"]),
        (150, 9999, ["REFUTED", "REFUTED"]),
        (9999, 9999, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_c4(test_step, without_step, expected):
    assert decided(delay.C4, logged(test_step, without_step)) == expected


def test_what_is_never_known_counts_as_known_at_twice_the_last_step():
    found = logged(9999, 300)
    assert found[SOFTMAX] == {"train_step": 100, "train_end": 1, "test_step": 2000, "test_end": pytest.approx(0.03)}
    assert found[delay.WITHOUT]["test_step"] == 300
    with pytest.raises(InputError, match="no metrics"):
        delay.measure(on(clock_by_hand(), TASK))


KEYS = {"restricted": 0.0, "excluded": 0.03, "n_key": 4.0, "accuracy": 1.0}


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ({}, ["SUPPORTED", "REFUTED"]),
        ({"excluded": 0.4}, ["REFUTED", "SUPPORTED"]),
        ({"restricted": 0.5}, ["REFUTED", "REFUTED"]),
        ({"n_key": 9.0}, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_c5(constant, expected):
    assert decided(key_frequencies.C5, {SOFTMAX: KEYS, CONSTANT: {**KEYS, **constant}}) == expected


READ = {"map": 0.9, "phases": 0.99, "explained": 0.95, "evened": 0.95, "accuracy": 1.0}


@pytest.mark.parametrize(
    ("softmax", "expected"),
    [
        ({}, ["SUPPORTED", "REFUTED"]),
        ({"map": 0.2}, ["REFUTED", "SUPPORTED"]),
        ({"phases": 0.3}, ["REFUTED", "REFUTED"]),
        ({"evened": 0.4}, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_c6(softmax, expected):
    assert decided(one_map.C6, {SOFTMAX: {**READ, **softmax}, CONSTANT: READ}) == expected


def test_other_tasks_are_refused():
    subject = on(clock_by_hand(), TASK)
    assert accuracy(subject) == 1
    with pytest.raises(InputError, match="about modular addition"):
        accuracy(replace(subject, task=PermutationLookup()))
