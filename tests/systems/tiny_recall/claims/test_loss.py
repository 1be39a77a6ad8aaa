import math

import pytest

from mnemoscope.models import together
from mnemoscope.models.constructed.stand_ins import predicting
from mnemoscope.models.subjects import planted, untrained
from mnemoscope.systems.tiny_recall.claims.loss import T5, T8, UNITS, distances, measure, small_on_repeats
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving, outcomes

FLOOR = math.log(120) / 5
MIXED = UNITS["v3"].spec(0).task


def ruled(claim, effects):
    return [verdict(one, [effects]).outcome for one in (claim, *claim.rivals)]


def test_loss_by_distribution():
    found = measure(predicting(UNITS, "bayes")(0)["v1"])
    assert [found[name] for name in ("fresh", "repeat", "mixed")] == pytest.approx([FLOOR] * 3)
    assert (found["elimination"], found["recall"]) == (1, 1)


def test_a_sure_wrong_answer_costs_on_the_mixture():
    """At the last slot of a repeat `elimination_only` puts the recalled value 10 logits below the unused one."""
    task = UNITS["v1"].spec(0).task
    found = measure(planted("v1", elimination_only, task)(0)["v1"])
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
    v3, small = planted("v3", dissociated, MIXED), planted("d16h1", elimination_only, MIXED)
    assert outcomes(T5, together(v3, small)) == {"T5": "REFUTED", "T5-guess": "REFUTED"}
    assert outcomes(T5, untrained(T5.units))["T5"] == "REFUTED"


def test_effects_of_t8_by_hand():
    measured = {
        "v1": {"fresh": 0.959, "mixed": 1.500},
        "d16h1": {"fresh": 0.960, "mixed": 1.010},
        "v3": {"fresh": 0.957, "mixed": 0.956},
    }
    found = distances(measured)
    expected = {"v1_fresh": 0.002, "v1_mixed": 0.544, "d16h1_fresh": 0.003, "d16h1_mixed": 0.054, "own": 0.003}
    assert found == {name: pytest.approx(value) for name, value in expected.items()}
    assert ruled(T8, found) == ["REFUTED", "SUPPORTED", "SUPPORTED"]


def test_equal_losses_support_t8():
    equal = {name: {"fresh": 0.958, "mixed": 0.958} for name in UNITS}
    assert ruled(T8, distances(equal)) == ["SUPPORTED", "REFUTED", "SUPPORTED"]


def test_models_of_which_one_recalls_decide_t8():
    small = [planted(name, elimination_only, MIXED) for name in ("v1", "d16h1")]
    found = outcomes(T8, together(predicting(UNITS, "bayes"), together(*small)))
    assert (found["T8"], found["T8-mixed"]) == ("REFUTED", "SUPPORTED")


@pytest.mark.parametrize("claim", [T5, T8])
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
