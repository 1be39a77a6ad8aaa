from dataclasses import replace

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import induction
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import NOISE, noise_and_output
from mnemoscope.systems.in_context_bigrams.claims.noisy_recall import (
    CLAIM,
    IN_HEAD,
    IN_INDUCTION,
    IN_MLP,
    TASK,
    measure,
    prompts,
)
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving, outcomes


def test_the_prompts_are_of_the_seed():
    first, again, other, reference = (
        prompts(TASK, seed, use) for seed, use in ((3, "prompts"), (3, "prompts"), (4, "prompts"), (3, "reference"))
    )
    assert (first.inputs == again.inputs).all()
    for one in (other, reference):
        assert (first.inputs != one.inputs).any()
    assert noise_and_output(TASK, first)[NOISE][1].sum() > 1000


def test_a_noise_token_that_the_mlp_stores_at_rank_one():
    found = effects_of(CLAIM, IN_MLP)
    assert found["gate"] > 0.99
    assert found["truncation"] == pytest.approx(1 - found["share before"], abs=0.01)
    assert found["components removed"] == 1
    assert 0.4 < found["removal"] <= found["truncation"] + 0.01
    assert found["attention"] < 0
    zero = effects_of(CLAIM, IN_MLP, kind="zero")
    assert zero["removal"] == pytest.approx(found["truncation"], abs=1e-3)  # there is no bias
    assert found["p(noise) without the MLP"] < 0.15 < found["p(noise) before"]


@pytest.mark.parametrize("weight", ["W_in", "both"])
def test_other_weights_that_are_cut(weight):
    found = effects_of(CLAIM, IN_MLP, weight=weight)
    assert found["truncation"] == pytest.approx(1 - found["share before"], abs=0.01)
    assert found["components removed"] == {"W_in": 3, "both": 1}[weight]  # a component a trigger, and one for all


@pytest.mark.parametrize("factors", [{}, {"kind": "zero"}], ids=str)
def test_controls_behave(factors):
    assert misbehaving(CLAIM, **factors) == {}


@pytest.mark.parametrize(
    ("plant", "supported"),
    [(IN_MLP, {"N2"}), (IN_HEAD, {"N2-attention", "N2-none"}), (IN_INDUCTION, {"N2-none"})],
)
def test_each_mechanism_supports_its_claim_alone(plant, supported):
    found = outcomes(CLAIM, plant)
    assert {name for name, outcome in found.items() if outcome == "SUPPORTED"} == supported
    assert {name for name, outcome in found.items() if outcome == "REFUTED"} == set(found) - supported


@pytest.mark.parametrize(
    ("removal", "truncation", "expected"),
    [
        (0.3, 0.3, "SUPPORTED"),
        (0.2, 0.3, "REFUTED"),
        (0.3, 0.2, "REFUTED"),
        (0.25, 0.25, "INCONCLUSIVE"),
    ],
)
def test_tables_of_effects(removal, truncation, expected):
    assert verdict(CLAIM, {"removal": removal, "truncation": truncation, "gate": 0.8}).outcome == expected


def test_models_that_put_little_on_the_two_are_not_judged():
    assert verdict(CLAIM, {"removal": 0.3, "truncation": 0.3, "gate": 0.79}).outcome == "NOT_APPLICABLE"


def test_a_model_without_an_mlp_is_refused():
    task = replace(TASK, length=24)
    with pytest.raises(InputError, match="no MLP"):
        measure(on(induction(9, 24), task))
