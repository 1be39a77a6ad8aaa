"""I1 to I6: their controls, and what decides them."""

import pytest

from mnemoscope.systems.induction_formation.claims import (
    classes_and_labels,
    held_ideal,
    one_left,
    replaced,
    several_heads,
    wired,
)
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving

QUICK = (
    held_ideal.I3,
    held_ideal.I4,
    one_left.CLAIM,
    classes_and_labels.I5,
    classes_and_labels.I5_SUBCIRCUITS,
    replaced.I6,
)
SLOW = (several_heads.I1, wired.I2)


@pytest.mark.parametrize(
    "claim", [*QUICK, *(pytest.param(claim, marks=pytest.mark.thorough) for claim in SLOW)], ids=lambda claim: claim.id
)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def decided(claim, measured):
    found = claim.compare(measured) if claim.compare else measured
    return [verdict(one, found).outcome for one in (claim, *claim.rivals)]


WHOLE = {
    "n_strong": 5.0, "alone": 0.95, "best_alone": 0.97, "lost": 0.0, "additive": 2.0, "accuracy": 1.0, "change": 400.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("whole", "one_head", "expected"),
    [
        ({}, 800, ["SUPPORTED", "REFUTED", "REFUTED"]),
        ({}, 420, ["REFUTED", "REFUTED", "REFUTED"]),
        ({"lost": 0.5}, 800, ["REFUTED", "SUPPORTED", "REFUTED"]),
        ({"alone": 0.6}, 800, ["REFUTED", "REFUTED", "SUPPORTED"]),
        ({"n_strong": 1.0}, 800, ["REFUTED", "REFUTED", "REFUTED"]),
        ({"accuracy": 0.9}, 800, ["NOT_APPLICABLE"] * 3),
    ],
)
def test_what_decides_i1(whole, one_head, expected):
    measured = {"formation": {**WHOLE, **whole}, "formation-one-head": {"change": float(one_head)}}
    assert decided(several_heads.I1, measured) == expected


@pytest.mark.parametrize(
    ("n_previous", "n_induction", "expected"),
    [
        (2.5, 4.0, ["SUPPORTED", "REFUTED", "REFUTED"]),
        (1.1, 4.0, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (1.1, 1.2, ["REFUTED", "REFUTED", "SUPPORTED"]),
    ],
)
def test_what_decides_i2(n_previous, n_induction, expected):
    measured = {"n_previous": n_previous, "n_induction": n_induction, "gate": 1.0}
    assert decided(wired.I2, measured) == expected


STEPS = {"one_head": 1000, "copy": 700, "layer_1": 400, "match": 50, "layer_1_copy": 200, "key_copy": 60}
PLATEAUS = {"one_head": 0.8, "copy": 0.7, "layer_1": 0.7, "match": 0.0, "layer_1_copy": 0.2, "key_copy": 0.1}


def conditions(steps, plateaus):
    names = {"one_head": "formation-one-head", **held_ideal.HELD}
    return {
        name: {"change": float({**STEPS, **steps}[held]), "plateau": {**PLATEAUS, **plateaus}[held]}
        for held, name in names.items()
    }


@pytest.mark.parametrize(
    ("steps", "plateaus", "expected"),
    [
        ({}, {}, ["SUPPORTED", "REFUTED", "REFUTED", "REFUTED"]),
        ({"layer_1_copy": 60, "key_copy": 200}, {}, ["REFUTED", "SUPPORTED", "REFUTED", "REFUTED"]),
        ({"copy": 100, "layer_1_copy": 90}, {}, ["REFUTED", "REFUTED", "SUPPORTED", "SUPPORTED"]),
        ({}, {"copy": 0.1}, ["REFUTED", "REFUTED", "REFUTED", "REFUTED"]),
        ({"copy": 980}, {}, ["REFUTED", "REFUTED", "REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_i3(steps, plateaus, expected):
    assert decided(held_ideal.I3, conditions(steps, plateaus)) == expected


@pytest.mark.parametrize(
    ("plateaus", "expected"),
    [
        ({}, ["SUPPORTED", "REFUTED"]),
        ({"layer_1_copy": 0.7}, ["REFUTED", "SUPPORTED"]),
        ({"one_head": 0.3}, ["REFUTED", "REFUTED"]),
        ({"key_copy": 0.8}, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_i4(plateaus, expected):
    assert decided(held_ideal.I4, conditions({}, plateaus)) == expected


@pytest.mark.parametrize(
    ("shares", "changed", "expected"),
    [
        ((0.7, 0.0, 0.0, 0.1), 0.2, ["SUPPORTED", "REFUTED", "REFUTED", "REFUTED"]),
        ((0.7, 0.6, 0.0, 0.1), 0.2, ["REFUTED", "SUPPORTED", "REFUTED", "REFUTED"]),
        ((0.7, 0.0, 0.6, 0.6), 0.2, ["REFUTED", "REFUTED", "SUPPORTED", "SUPPORTED"]),
        ((0.4, 0.0, 0.0, 0.1), 0.2, ["REFUTED"] * 4),
        ((0.7, 0.0, 0.0, 0.1), 2.0, ["NOT_APPLICABLE"] * 4),
    ],
)
def test_what_decides_i4_near(shares, changed, expected):
    measured = {unit: {"plateau": share, "changed": 0.1} for unit, share in zip(one_left.UNITS, shares, strict=True)}
    measured["formation-match"]["changed"] = changed
    assert decided(one_left.CLAIM, measured) == expected


@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        (800, 420, ["SUPPORTED", "REFUTED", "REFUTED"]),
        (420, 800, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (800, 800, ["REFUTED", "REFUTED", "SUPPORTED"]),
        (400, 400, ["REFUTED", "REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_i5(classes, labels, expected):
    steps = {"formation": 400, "formation more classes": classes, "formation more labels": labels}
    measured = {name: {"change": float(step)} for name, step in steps.items()}
    assert decided(classes_and_labels.I5, measured) == expected


@pytest.mark.parametrize(
    ("first", "left", "end", "expected"),
    [
        (0.0, 2.0, 0.01, ["SUPPORTED", "REFUTED"]),
        (0.0, 1.0, 0.01, ["REFUTED", "SUPPORTED"]),
        (0.5, 2.0, 0.01, ["REFUTED", "REFUTED"]),
        (0.0, 2.0, 0.6, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_i6(first, left, end, expected):
    whole = {"first_strong": first, "left": 1.0, "accuracy": 1.0, "loss_end": 0.0, "loss_after": 0.05}
    hurt = {**whole, "left": left, "loss_end": end, "loss_after": 0.4}
    assert decided(replaced.I6, {"formation": whole, replaced.HURT: hurt}) == expected
