import math
from dataclasses import replace

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import induction
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import NOISE, noise_and_output
from mnemoscope.systems.in_context_bigrams.claims.noisy_recall import (
    AHEAD,
    CLAIM,
    IN_FIRST_MLP,
    IN_HEAD,
    IN_INDUCTION,
    IN_MLP,
    TASK,
    measure,
    prompts,
    shown,
    turned,
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


def test_positions_are_triggers_whose_output_can_be_known():
    batch = prompts(TASK, 3, "prompts")
    where = shown(TASK, batch)
    assert 0 < where.sum() < noise_and_output(TASK, batch)[NOISE][1].sum()
    assert (batch.latents["shown"][where] > 0).all()


def test_what_turns():
    before = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.5, 0.5]])
    after = torch.tensor([[0.1, 0.2], [0.2, 0.1], [0.2, 0.1], [0.1, 0.2]])
    assert turned(before, after) == 0.5, "a tie is no lead, and what is ahead already does not turn"
    assert turned(before, after, torch.tensor([True, False, True, True])) == 1
    assert turned(before, after, torch.tensor([False, False, True, True])) == 0


def test_a_noise_token_that_the_mlp_stores_at_rank_one():
    found = effects_of(CLAIM, IN_MLP)
    assert found["gate"] > 0.99
    assert found["noise ahead before"] == 1
    assert (found["removal"], found["truncation"], found["components removed"]) == (1, 1, 1)
    assert (found["attention"], found["early"]) == (0, 0)
    assert found["likelier"] == pytest.approx(1 / (1 + math.exp(-AHEAD)), abs=1e-3), "from sigmoid(-1/2) to 1"
    zero = effects_of(CLAIM, IN_MLP, kind="zero")
    assert zero["removal"] == 1
    assert found["p(noise) without the MLP"] < 0.15 < found["p(noise) before"]


@pytest.mark.parametrize("weight", ["W_in", "both"])
def test_other_weights_that_are_cut(weight):
    found = effects_of(CLAIM, IN_MLP, weight=weight)
    assert found["truncation"] == 1
    assert found["components removed"] == {"W_in": 3, "both": 1}[weight]  # a component a trigger, and one for all


@pytest.mark.parametrize("factors", [{}, {"kind": "zero"}], ids=str)
def test_controls_behave(factors):
    assert misbehaving(CLAIM, **factors) == {}


@pytest.mark.parametrize(
    ("plant", "supported"),
    [
        (IN_MLP, {"N2"}),
        (IN_HEAD, {"N2-attention", "N2-none"}),
        (IN_INDUCTION, {"N2-none"}),
        (IN_FIRST_MLP, {"N2-early", "N2-none"}),
    ],
)
def test_each_mechanism_supports_its_claim_alone(plant, supported):
    found = outcomes(CLAIM, plant)
    assert {name for name, outcome in found.items() if outcome == "SUPPORTED"} == supported
    assert {name for name, outcome in found.items() if outcome == "REFUTED"} == set(found) - supported


@pytest.mark.parametrize(
    ("removal", "truncation", "likelier", "expected"),
    [
        (0.6, 0.6, 0.2, "SUPPORTED"),
        (0.4, 0.6, 0.2, "REFUTED"),
        (0.6, 0.4, 0.2, "REFUTED"),
        (0.6, 0.6, 0.05, "REFUTED"),
        (0.5, 0.5, 0.1, "INCONCLUSIVE"),
    ],
)
def test_tables_of_effects(removal, truncation, likelier, expected):
    found = {"removal": removal, "truncation": truncation, "likelier": likelier, "gate": 0.8}
    assert verdict(CLAIM, found).outcome == expected


def test_models_that_put_little_on_the_two_are_not_judged():
    assert (
        verdict(CLAIM, {"removal": 0.6, "truncation": 0.6, "likelier": 0.2, "gate": 0.79}).outcome == "NOT_APPLICABLE"
    )


def test_a_model_without_an_mlp_is_refused():
    task = replace(TASK, length=24)
    with pytest.raises(InputError, match="no MLP"):
        measure(on(induction(9, 24), task))
