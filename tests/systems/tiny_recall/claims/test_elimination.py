import math

import pytest

from mnemoscope.claims.claim import EFFECT, GATE
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed.stand_ins import predict_exactly
from mnemoscope.models.subjects import Subject, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.elimination import T1, T1_LOSS, T2, UNITS, measure_conflict
from mnemoscope.systems.tiny_recall.constructed import dissociated
from tests.systems.on_trial import verdict
from tests.systems.planting import effects_of, misbehaving, outcomes

TASK = UNITS["v1"].spec(0).task
FLOOR = math.log(120) / 5


def test_an_exact_predictor_is_at_the_floor():
    found = effects_of(T1, predict_exactly(UNITS, "bayes"))
    assert found["elimination"] == 1
    assert found["loss"] == pytest.approx(FLOOR)
    assert found["training_loss"] == pytest.approx(FLOOR)
    assert found["loss_distance"] == pytest.approx(0.959 - FLOOR)


def test_a_predictor_that_knows_its_split_loses_less_in_training_and_does_not_count():
    found = effects_of(T1, predict_exactly(UNITS, "bayes_train"))
    assert found["training_loss"] == pytest.approx(math.log(96) / 5)  # one of 96 mappings, told in five answers
    assert found["loss"] == math.inf
    assert outcomes(T1, predict_exactly(UNITS, "bayes_train")) == {"T1": "REFUTED"}
    assert set(outcomes(T1_LOSS, predict_exactly(UNITS, "bayes_train")).values()) == {"REFUTED"}


def test_planted_models_decide_t1():
    for plant, expected in ((predict_exactly(UNITS, "bayes"), "SUPPORTED"), (untrained(UNITS), "REFUTED")):
        assert outcomes(T1, plant) == {"T1": expected}
        assert outcomes(T1_LOSS, plant) == {"T1-loss": expected, "T1-loss-train": expected}


def test_accuracy_and_loss_are_two_questions():
    off_by_more = {"elimination": 1.0, "loss_distance": 0.03, "training_loss_distance": 0.001}
    found = {one.id: verdict(one, off_by_more).outcome for one in (T1, T1_LOSS, *T1_LOSS.rivals)}
    assert found == {"T1": "SUPPORTED", "T1-loss": "REFUTED", "T1-loss-train": "SUPPORTED"}
    three_wrong = off_by_more | {"elimination": 1 - 3 / 2880}
    assert verdict(T1, three_wrong).outcome == "REFUTED"


@pytest.mark.parametrize("slots", ["all", "first"])
def test_the_unused_value_on_the_conflict_set(planted, slots):
    found = measure_conflict(Subject(model=planted, task=TASK.for_seed(0), seed=0), slots=slots)
    assert found[EFFECT] == pytest.approx(1 / (1 + 4 * math.exp(-10)), abs=1e-6)
    assert found["p_recalled"] == pytest.approx((1 - found[EFFECT]) / 4, rel=1e-3)
    assert found[GATE] == 1


def test_a_model_that_recalls_refutes_t2():
    plant = set_by_hand("v1", dissociated, TASK)
    assert effects_of(T2, plant)["p_recalled"] > 0.99
    assert outcomes(T2, plant) == {"T2": "REFUTED"}


def test_an_untrained_model_is_not_judged_by_t2():
    assert outcomes(T2, untrained(UNITS)) == {"T2": "NOT_APPLICABLE"}


def test_other_slots_are_refused(as_installed):
    with pytest.raises(InputError, match="slots must be one of: all, first; got 'last'"):
        measure_conflict(predict_exactly(UNITS, "bayes")(0)["v1"], slots="last")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("claim", "factors"), [(T1, {}), (T1_LOSS, {}), (T2, {}), (T2, {"slots": "first"})])
def test_controls_behave(claim, factors):
    assert misbehaving(claim, **factors) == {}
