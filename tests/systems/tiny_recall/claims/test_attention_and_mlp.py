"""T16: recall needs attention that depends on the sequence, and the MLP."""

import pytest

from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.attention_and_mlp import CLAIM, UNITS, all_patterns, measure, outcome
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
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
    assert measured["fixed_attention"] < 0.5  # the head that recalls looks for the same x


def test_attention_that_is_fixed_anyway_is_not_missed():
    subject = set_by_hand("v3", elimination_only, PermutationLookup(repeat_ratio=0.3))(0)["v3"]
    assert len(all_patterns(subject.model)) == 2
    assert measure(subject)["fixed_attention"] == measure(subject)["recall"] == 0  # it attends by position alone


def test_a_model_without_an_mlp_loses_nothing_with_it():
    effects = effects_of(CLAIM, ATTENTION)
    assert effects["without_mlp"] == effects["trained_without_mlp"] == 1
    assert effects["without_attention"] < 0.5


def test_verdicts_on_planted_outcomes():
    rivals = ["T16-attention", "T16-fixed"]
    assert outcomes(CLAIM, NEEDED) == {"T16": "SUPPORTED", **dict.fromkeys(rivals, "REFUTED")}
    assert outcomes(CLAIM, ATTENTION) == {"T16": "REFUTED", "T16-attention": "SUPPORTED", "T16-fixed": "REFUTED"}
    for place in range(3):
        values = [0.2] * 3
        values[place] = 0.95
        assert outcomes(CLAIM, numbers(outcome(*values)))["T16"] == "REFUTED"
        values[place] = 0.625
        assert outcomes(CLAIM, numbers(outcome(*values)))["T16"] == "INCONCLUSIVE"


def test_untrained_models_do_not_pass():
    assert set(outcomes(CLAIM, untrained(UNITS)).values()) == {"NOT_APPLICABLE"}


def test_a_circuit_by_hand_passes_the_gate():
    subject = set_by_hand("v3", dissociated, PermutationLookup(repeat_ratio=0.3))(0)["v3"]
    assert measure(subject)["gate"] == 1
