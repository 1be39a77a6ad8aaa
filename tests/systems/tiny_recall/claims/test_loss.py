import math

import pytest

from mnemoscope.models import combined
from mnemoscope.models.constructed.stand_ins import predict_exactly
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.loss import ONE_BIT, T5, T8, T8_FRESH, distances, measure, small_on_repeats
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, partial_recall
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving, outcomes

FLOOR = math.log(120) / 5
MIXED = T8.units["v3"].spec(0).task


def ruled(claim, effects):
    return [verdict(one, [effects]).outcome for one in (claim, *claim.rivals)]


def test_loss_by_distribution():
    found = measure(predict_exactly(T8.units, "bayes")(0)["v3"])
    assert [found[name] for name in ("fresh", "repeat", "mixed")] == pytest.approx([FLOOR] * 3)
    assert (found["elimination"], found["recall"]) == (1, 1)


def test_a_sure_wrong_answer_costs_on_the_mixture():
    """At the last slot of a repeat `elimination_only` puts the recalled value 10 logits below the unused one."""
    found = measure(set_by_hand("d16h1", elimination_only, MIXED)(0)["d16h1"])
    assert found["repeat"] - found["fresh"] == pytest.approx(10 / 5, rel=1e-4)
    assert found["mixed"] == pytest.approx(found["fresh"] + 0.3 * 2, rel=1e-4)
    assert (found["elimination"], found["recall"]) == (1, 0)


def test_effects_of_t5_by_hand():
    found = small_on_repeats(
        {
            "d16h1": {"elimination": 1.0, "recall": 0.2, "mixed": 1.0},
            "v3": {"elimination": 1.0, "recall": 1.0, "mixed": 0.9},
        }
    )
    assert found["loss_distance"] == pytest.approx(0.1)
    assert found["guess"] == pytest.approx(0.05)
    assert ruled(T5, found) == ["REFUTED", "SUPPORTED"]


def test_models_that_eliminate_and_recall_decide_t5():
    """Recall and elimination are as claimed; the loss is not, since a sure wrong answer costs."""
    v3, small = set_by_hand("v3", dissociated, MIXED), set_by_hand("d16h1", elimination_only, MIXED)
    assert outcomes(T5, combined(v3, small)) == {"T5": "REFUTED", "T5-guess": "REFUTED"}
    assert outcomes(T5, untrained(T5.units))["T5"] == "REFUTED"


def losses(fresh, mixed, recall):
    small = {"fresh": 0.957 + fresh, "mixed": 0.956 + mixed, "elimination": 1.0, "recall": recall}
    return {"d16h1": small, "v3": {"fresh": 0.957, "mixed": 0.956, "elimination": 1.0, "recall": 1.0}}


def test_effects_of_t8_by_hand():
    found = distances(losses(0.003, 0.054, 0.25))
    assert (found["fresh"], found["mixed"]) == pytest.approx((0.003, 0.054))
    assert found["d16h1 mixed"] == pytest.approx(1.010)
    assert found["gate"] == pytest.approx(0.01)  # v3 recalls in all: .01 above .99; d16h1 is .375 below .625
    assert ruled(T8, found) == ["REFUTED", "SUPPORTED"]
    assert ruled(T8_FRESH, found) == ["SUPPORTED", "REFUTED"]


def test_the_margin_is_what_wrong_answers_to_all_repeats_cost_at_least():
    """The right answer gets one half at most; a guess among four gets a quarter, which costs twice as much."""
    assert pytest.approx(0.3 * math.log(2) / 5) == ONE_BIT
    assert pytest.approx(0.3 * math.log(4) / 5) == 2 * ONE_BIT
    assert ruled(T8, distances(losses(0.0, 2 * ONE_BIT, 0.25))) == ["REFUTED", "SUPPORTED"]
    assert ruled(T8, distances(losses(0.0, 0.02, 0.5))) == ["SUPPORTED", "REFUTED"]


@pytest.mark.parametrize(
    "changed",
    [("d16h1", "recall", 0.7), ("v3", "recall", 0.9), ("d16h1", "elimination", 0.9), ("v3", "elimination", 0.9)],
)
def test_models_that_do_not_differ_in_recall_alone_are_set_aside(changed):
    measured = losses(0.0, 0.0, 0.25)
    unit, name, value = changed
    measured[unit][name] = value
    found = distances(measured)
    assert found["gate"] < 0
    assert set(ruled(T8, found)) == {"NOT_APPLICABLE"}


def test_models_of_which_one_recalls_decide_t8():
    """Sure wrong answers to two tokens of five cost 10 logits each, on repeats only."""
    small, large = set_by_hand("d16h1", partial_recall, MIXED), set_by_hand("v3", dissociated, MIXED)
    assert outcomes(T8, combined(small, large)) == {"T8": "REFUTED", "T8-tells": "SUPPORTED"}
    assert outcomes(T8_FRESH, combined(small, large)) == {"T8-fresh": "SUPPORTED", "T8-fresh-tells": "REFUTED"}


@pytest.mark.parametrize("claim", [T5, T8, T8_FRESH], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
