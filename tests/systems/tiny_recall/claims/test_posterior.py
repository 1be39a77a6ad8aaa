import numpy as np
import pytest

from mnemoscope.claims.claim import EFFECT, GATE
from mnemoscope.models.constructed.stand_ins import predict_exactly
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claims.posterior import BOTH, ERRORS, T3, T4, V1, compare, measure
from tests.systems.on_trial import verdict
from tests.systems.planting import effects_of, misbehaving, outcomes


def test_the_published_errors_are_those_of_every_slot():
    assert list(ERRORS["v1"]) == ["all_1", "all_2", "all_3", "all_4", "fresh_5"]
    assert list(ERRORS["v3"]) == [*list(ERRORS["v1"]), "repeat_5"]
    assert ERRORS["v1"]["all_1"] == 0.012388


def test_errors_of_a_uniform_predictor():
    """At slot k the posterior is 1 / (6 - k) on 6 - k values: the mean distance from .2 is 2 (k - 1) / 25."""
    found = measure(predict_exactly(BOTH, "uniform")(0)["v3"])
    assert [found[f"all_{slot}"] for slot in range(1, 5)] == pytest.approx([0, 2 / 25, 4 / 25, 6 / 25])
    assert [found[f"{name}_5"] for name in ("fresh", "repeat")] == pytest.approx([8 / 25] * 2)


def test_the_largest_error_counts_and_only_where_one_was_published():
    own = {name: dict.fromkeys(["all_1", "all_2", "all_3", "all_4", "fresh_5", "repeat_5"], 0.0) for name in BOTH}
    v1, v3 = ({**own[name], "nearer_to_training": 0.1} for name in ("v1", "v3"))
    v1 |= {"all_2": 3 * 0.015530, "all_3": 0.018369, "repeat_5": 1.0}  # v1 has no published figure on repeats
    v3 |= {"repeat_5": 2 * 0.000838}
    found = compare({"v1": v1, "v3": v3})
    expected = {
        **{"v1": 3 * 0.015530, "v1_split": 0.1, "v1 published": 0.018369, "v1 by published": 3},
        **{"v3": 2 * 0.000838, "v3_split": 0.1, "v3 published": 0.021205, "v3 by published": 2},
    }
    assert found == pytest.approx(expected)
    assert verdict(T3, [found]).outcome == "REFUTED"
    assert verdict(T3, [found | {"v1": 0.0249}]).outcome == "SUPPORTED"
    assert verdict(T3, [found | {"v1": 0.025}]).outcome == "INCONCLUSIVE"  # at the margin


def test_a_value_ruled_out_at_slot_1():
    """`elimination_only` reads the first x as a y: .25 on four values instead of .2 on five."""
    found = effects_of(T3, T3.controls[4].plant)
    assert found["v1"] == pytest.approx((0.2 + 4 * 0.05) / 5, abs=1e-4)
    assert found["v3"] == pytest.approx((1 + 1) / 5, abs=1e-4)  # and on repeats it is sure of another value


def test_planted_predictors_decide_t3():
    assert outcomes(T3, predict_exactly(BOTH, "bayes")) == {"T3": "SUPPORTED", "T3-split": "REFUTED"}
    assert outcomes(T3, predict_exactly(BOTH, "bayes_train")) == {"T3": "REFUTED", "T3-split": "SUPPORTED"}


def test_shortfall_of_predictors_that_are_known():
    exact, split, uniform = (effects_of(T4, predict_exactly(V1, name)) for name in ("bayes", "bayes_train", "uniform"))
    assert exact[EFFECT] == pytest.approx(0, abs=1e-12)
    assert exact["excess"] == pytest.approx(0, abs=1e-12)
    theory = np.mean([1 / 5, 1 / 4, 1 / 3, 1 / 2])
    assert uniform[EFFECT] == pytest.approx(theory - 1 / 5)  # ties count in expectation
    assert split["shortfall"] > 0.05
    assert split["excess"] > 0.02
    assert exact[GATE] == 1


def test_planted_predictors_decide_t4():
    assert outcomes(T4, predict_exactly(V1, "bayes")) == {"T4": "SUPPORTED", "T4-imprint": "REFUTED"}
    split = effects_of(T4, predict_exactly(V1, "bayes_train"))
    assert split[GATE] == 0.0  # it answers nothing that it has not seen
    split = {**split, GATE: 1.0}
    assert [verdict(claim, [split]).outcome for claim in (T4, *T4.rivals)] == ["REFUTED", "SUPPORTED"]


def test_an_untrained_model_is_not_judged_by_t4():
    assert set(outcomes(T4, untrained(V1)).values()) == {"NOT_APPLICABLE"}


@pytest.mark.parametrize("claim", [T3, T4])
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
