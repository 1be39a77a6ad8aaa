"""The claim before any trial: its controls, and what known replicates would make of it."""

import pytest
from even_attention import CLAIM, RIVAL, measure
from tests.claims.on_trial import trouble, verdict

BY_HAND, UNTRAINED = (control.plant(0)["v1"] for control in CLAIM.controls)


@pytest.mark.parametrize("claim", [CLAIM, RIVAL])
def test_controls_behave(claim):
    assert trouble(claim) is None


@pytest.mark.parametrize("claim", [CLAIM, RIVAL])
def test_planted_replicates_decide(claim):
    assert verdict(claim, measure(BY_HAND)).outcome == "SUPPORTED"
    assert verdict(claim, measure(UNTRAINED)).outcome == "NOT_APPLICABLE"


def test_an_effect_at_the_margin_decides_nothing():
    assert verdict(CLAIM, {"gate": 1.0, "effect": 0.9}).outcome == "INCONCLUSIVE"
