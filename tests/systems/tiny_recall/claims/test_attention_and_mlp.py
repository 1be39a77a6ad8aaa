"""T16: recall needs attention and the MLP."""

import pytest

from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claims.attention_and_mlp import (
    CLAIM,
    UNITS,
    measure,
    outcome,
)
from tests.systems.planting import effects_of, misbehaving, numbers, outcomes

NEEDED = {control.name: control.plant for control in CLAIM.controls}["both are needed"]
ATTENTION = {control.name: control.plant for control in CLAIM.controls}["attention recalls"]


@pytest.mark.parametrize("kind", ["mean", "zero", "resample"])
def test_controls_behave(kind):
    assert misbehaving(CLAIM, kind=kind) == {}


def test_removal_from_a_circuit_that_is_known():
    measured = measure(NEEDED(0)["v3"], kind="zero")
    assert measured["recall"] == 1
    assert measured["without_mlp"] == 0  # head 0 rules the recalled value out
    assert measured["without_attention"] == pytest.approx(0.2, abs=0.05)  # always the lowest value


def test_a_model_without_an_mlp_loses_nothing_with_it():
    effects = effects_of(CLAIM, ATTENTION)
    assert effects["without_mlp"] == effects["trained_without_mlp"] == 1
    assert effects["without_attention"] < 0.5


def test_a_model_held_without_attention_is_measured():
    measured = measure(untrained(UNITS)(0)["v3-no-attention"])
    assert measured["without_attention"] == pytest.approx(measured["recall"], abs=0.05)  # of a sample


def test_verdicts_on_planted_outcomes():
    rivals = ["T16-attention", "T16-mlp"]
    assert outcomes(CLAIM, NEEDED) == {"T16": "SUPPORTED", **dict.fromkeys(rivals, "REFUTED")}
    assert list(outcomes(CLAIM, ATTENTION).values()) == ["REFUTED", "SUPPORTED", "REFUTED"]
    for place in range(4):
        values = [0.2] * 4
        values[place] = 0.95
        assert outcomes(CLAIM, numbers(outcome(*values)))["T16"] == "REFUTED"


def test_untrained_models_do_not_pass():
    assert set(outcomes(CLAIM, untrained(UNITS)).values()) == {"NOT_APPLICABLE"}
