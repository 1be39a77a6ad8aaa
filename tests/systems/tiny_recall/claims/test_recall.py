import math
from dataclasses import replace

import pytest

from mnemoscope.claims.claim import EFFECT
from mnemoscope.models.constructed import layer_normalised
from mnemoscope.models.constructed.stand_ins import predict_exactly
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claim_parts import V3
from mnemoscope.systems.tiny_recall.claims.recall import FRESH, T6, T7, T9, larger_recall, measure, measure_errors
from mnemoscope.systems.tiny_recall.constructed import elimination_only, partial_recall
from tests.systems.on_trial import verdict
from tests.systems.planting import effects_of, misbehaving, outcomes


def table(recall):
    return {"elimination": 1.0, "recall": recall, EFFECT: min(recall - 0.3, 0.97 - recall)}


def test_three_tokens_of_five_are_partial():
    found = measure(T6.controls[0].plant(0)["v2"])
    assert found == {"elimination": 1, "recall": pytest.approx(0.6), EFFECT: pytest.approx(0.3)}


@pytest.mark.parametrize(
    ("recall", "expected"),
    [
        (0.6, ["SUPPORTED", "REFUTED", "REFUTED"]),
        (1.0, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (0.1, ["REFUTED", "REFUTED", "SUPPORTED"]),
        (0.98, ["REFUTED", "REFUTED", "REFUTED"]),  # neither partially nor fully
        (0.30, ["INCONCLUSIVE", "REFUTED", "INCONCLUSIVE"]),  # at the margin
    ],
)
def test_tables_decide_t6(recall, expected):
    assert [verdict(claim, [table(recall)]).outcome for claim in (T6, *T6.rivals)] == expected


def test_errors_and_the_published_ones_beside():
    """A uniform predictor is off by (.8 + 4 * .2) / 5 = .32 at the last slot."""
    found = measure_errors(predict_exactly(V3, "uniform")(0)["v3"])
    assert (found["error_elimination"], found["error_recall"]) == pytest.approx((0.32, 0.32))
    assert found["error_elimination by published"] == pytest.approx(0.32 / 0.000081)
    assert found["error_recall by published"] == pytest.approx(0.32 / 0.000838)
    assert found["recall"] == pytest.approx(0.2)  # of equals the lowest token counts


def test_planted_models_decide_t7():
    assert outcomes(T7, predict_exactly(V3, "bayes")) == {"T7": "SUPPORTED", "T7-accuracy": "SUPPORTED"}
    assert outcomes(T7, set_by_hand("v3", elimination_only, V3["v3"].spec(0).task)) == {
        "T7": "REFUTED",
        "T7-accuracy": "REFUTED",
    }
    assert outcomes(T7, untrained(V3)) == {"T7": "REFUTED", "T7-accuracy": "REFUTED"}


def test_accuracy_without_the_errors_is_the_rival():
    case = {"elimination": 1.0, "recall": 1.0, "error_elimination": 0.001, "error_recall": 0.02}
    assert [verdict(claim, [case]).outcome for claim in (T7, *T7.rivals)] == ["REFUTED", "SUPPORTED"]
    case |= {"error_recall": 2 * 0.005 / 5}  # 99.5 % on the right answer
    assert [verdict(claim, [case]).outcome for claim in (T7, *T7.rivals)] == ["SUPPORTED", "SUPPORTED"]


def test_a_model_that_is_right_and_unsure():
    found = effects_of(T7, {control.name: control for control in T7.controls}["right and unsure"].plant)
    right = 1 / (1 + 4 * math.exp(-4))  # the unused value stands 4 logits above the others
    assert found["error_elimination"] == pytest.approx(2 * (1 - right) / 5, rel=1e-3)
    assert found["elimination"] == found["recall"] == 1


def test_the_larger_recall_counts():
    found = larger_recall({"v1": {"recall": 0.02}, "v3-fresh": {"recall": 0.3}})
    assert found == {"v1": 0.02, "v3-fresh": 0.3, EFFECT: 0.3}


def test_one_model_that_recalls_refutes_t9():
    none, one = (larger_recall({"v1": {"recall": 0.0}, "v3-fresh": {"recall": r}}) for r in (0.01, 0.5))
    assert verdict(T9, [none]).outcome == "SUPPORTED"
    assert verdict(T9, [none] * 15 + [one]).outcome == "REFUTED"
    assert outcomes(T9, untrained(FRESH)) == {"T9": "REFUTED"}  # an untrained model guesses


@pytest.mark.parametrize("claim", [T6, T7, T9])
def test_controls_behave(claim):
    assert misbehaving(claim) == {}


def test_layer_normalised_models_are_measured_alike():
    unit = set_by_hand("v2", partial_recall, T6.units["v2"].spec(0).task)(0)["v2"]
    assert measure(replace(unit, model=layer_normalised(unit.model)))["recall"] == pytest.approx(0.6)
