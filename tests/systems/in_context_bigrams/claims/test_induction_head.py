"""B3: a previous-token head, then an induction head."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.claims.claim import GATE
from mnemoscope.models.constructed import induction
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, RANDOM_TRIGGERS, any_token
from mnemoscope.systems.in_context_bigrams.claims.induction_head import (
    B3,
    FIXED,
    IN_BOTH,
    RANDOM,
    UNITS,
    compare,
    fixed_tokens,
    measure,
    models,
    no_match,
    outcome,
)
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving, numbers, outcomes

AS_CLAIMED = models(any_token, fixed_tokens)
NARROW = models(any_token, any_token)
TASKS = {RANDOM: RANDOM_TRIGGERS, FIXED: FIXED_TRIGGERS}


def test_controls_behave():
    assert misbehaving(B3) == {}


def test_the_units_are_of_the_planted_tasks():
    for name, unit in UNITS.items():
        assert replace(TASKS[name], length=128) == unit.spec(0).task


def test_the_worse_of_both_counts():
    random = {"previous": 0.9, "induction": 0.6, "previous_cost": 0.3, "induction_cost": 0.5, "sufficient": 0.0}
    fixed = {"previous": 0.8, "induction": 0.7, "previous_cost": 0.4, "induction_cost": 0.2, "sufficient": 0.05}
    after = {"after": 0.3, "after_elsewhere": 0.2}
    found = compare(
        {RANDOM: {**random, **after, GATE: 0.9}, FIXED: {**fixed, "after": 0.7, "after_elsewhere": 0.6, GATE: 0.85}}
    )
    expected = {"previous": 0.8, "induction": 0.6, "previous_cost": 0.3, "induction_cost": 0.2, "sufficient": 0.05}
    assert {name: found[name] for name in IN_BOTH} == expected
    assert (found["fixed_after"], found["fixed_elsewhere"], found[GATE]) == (0.7, 0.6, 0.85)
    assert (found[f"previous {RANDOM}"], found[f"previous {FIXED}"]) == (0.9, 0.8)


def test_planted_circuits():
    meant, narrow = effects_of(B3, AS_CLAIMED), effects_of(B3, NARROW)
    exact = ("previous", "induction", "fixed_after", "fixed_elsewhere", GATE)
    assert [meant[name] for name in exact] == pytest.approx([1] * 5, abs=0.01)
    assert meant["sufficient"] == pytest.approx(0, abs=1e-9)
    assert min(meant["previous_cost"], meant["induction_cost"]) > 0.5
    assert narrow["induction"] > 0.99
    assert narrow["fixed_elsewhere"] < narrow["fixed_after"] < 0.5


@torch.no_grad()
def test_a_head_that_looks_two_places_back_is_no_previous_token_head():
    """It makes layer 2 find the second token after a trigger, so exact attention in its place is a gain and no cost."""
    task = InContextBigrams(length=16)
    model = induction(task.d_vocab, task.n_ctx)
    queries = model.blocks[0].attn.W_Q[0, task.d_vocab : task.d_vocab + task.n_ctx]
    queries[1:] = queries[:-1].clone()  # every position asks for what the one before it asked for
    found = measure(on(model, task))
    assert found["previous"] < 0.2
    assert found["sufficient"] < -0.5


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (AS_CLAIMED, ["SUPPORTED", "REFUTED"]),
        (NARROW, ["REFUTED", "SUPPORTED"]),
        (models(no_match, no_match), ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
        (numbers(outcome(previous_cost=0.0)), ["REFUTED", "REFUTED"]),
        (numbers(outcome(induction=0.3)), ["REFUTED", "REFUTED"]),
        (numbers(outcome(sufficient=0.3, after_elsewhere=0.2)), ["REFUTED", "SUPPORTED"]),
        (numbers(outcome(after=0.5, after_elsewhere=0.5)), ["INCONCLUSIVE", "INCONCLUSIVE"]),
    ],
)
def test_verdicts_on_what_is_planted(plant, expected):
    assert list(outcomes(B3, plant).values()) == expected


def test_untrained_models_are_not_judged():
    found = effects_of(B3, untrained(UNITS))
    assert found["previous"] < 0.1
    assert max(found["previous_cost"], found["induction_cost"]) < 0.1
    assert verdict(B3, found).outcome == "NOT_APPLICABLE"
    assert verdict(B3, {**found, GATE: 1.0}).outcome == "REFUTED"
