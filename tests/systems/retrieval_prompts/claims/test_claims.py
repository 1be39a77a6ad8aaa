"""L1 and L2 on models whose knowledge is planted: each outcome, and not applicable where no model is large."""

from dataclasses import replace
from functools import partial

import pytest

from mnemoscope import CLAIMS
from mnemoscope.claims import GATE
from mnemoscope.claims.trials import run_trials
from mnemoscope.systems.retrieval_prompts.claim_parts import random_weights, size
from mnemoscope.systems.retrieval_prompts.claims.equations import equations
from mnemoscope.systems.retrieval_prompts.claims.other_formulations import formulations
from mnemoscope.systems.retrieval_prompts.scoring import StandIn
from tests.systems.on_trial import trouble, verdict
from tests.systems.retrieval_prompts import tiny

L1, L2 = (CLAIMS.get(name) for name in ("L1", "L2"))


@pytest.mark.parametrize("claim", [L1, *L1.rivals, L2, *L2.rivals], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim, most=4) is None


@pytest.mark.parametrize(
    ("claim", "model", "outcome"),
    [
        (L1, StandIn(share=0.995), "SUPPORTED"),
        (L1, StandIn(share=0.9), "REFUTED"),
        (L1.rivals[0], StandIn(share=0.3), "SUPPORTED"),
        (L1.rivals[0], StandIn(share=0.7), "REFUTED"),
        (L2, StandIn(share=0.95), "SUPPORTED"),
        (L2, StandIn(share=0.6), "REFUTED"),
        (L2.rivals[0], StandIn(share=0.95, knows=("lives-with", "kingdoms")), "SUPPORTED"),
        (L2.rivals[0], StandIn(share=0.95), "REFUTED"),
        (L1, StandIn(share=0.995, n_parameters=1.35e8), "NOT_APPLICABLE"),
        (L2, StandIn(share=0.95, n_parameters=1.35e8), "NOT_APPLICABLE"),
    ],
)
def test_planted_models_get_their_verdict(claim, model, outcome):
    measured = [dict(claim.measure(replace(model, seed=seed))) for seed in range(8)]
    controls = replace(claim, controls=())
    assert verdict(controls, measured).outcome == outcome


def test_the_effect_of_equations_is_the_smallest_over_difficulties():
    found = equations(StandIn(share=0.8), n=40)
    assert found["effect"] == min(found[f"D={d}"] for d in range(1, 6))


def test_scorings_differ_where_sampling_comes_to_nothing():
    (model,) = random_weights(0).values()
    assert formulations(model, n=2, scoring="sampled")["kingdoms"] == 0
    assert size(model)[GATE] < 1e-3


def test_a_small_model_shows_its_effects_and_no_verdict(tmp_path):
    directory = tiny.save("llama", tmp_path / "tiny")
    asked = replace(L1, measure=partial(equations, n=4), controls=(), rivals=(), factors={})
    (ruling,) = run_trials([asked], [], models=[directory])
    assert ruling.verdict.outcome == "NOT_APPLICABLE"
    assert 0 <= float(ruling.evidence.effects.effect[0]) <= 1
