"""The claim before any trial: its controls, and what known replicates would make of it."""

import pytest
from even_attention import CLAIM, RIVAL, measure
from tests.systems.on_trial import trouble, verdict

BY_HAND, UNTRAINED = (control.plant(0)["v1"] for control in CLAIM.controls)


@pytest.mark.parametrize("claim", [CLAIM, RIVAL])
def test_controls_behave(claim):
    """The claim holds of the model by hand and not of untrained ones."""
    assert trouble(claim) is None


@pytest.mark.parametrize("claim", [CLAIM, RIVAL])
def test_planted_replicates_decide(claim):
    """If all seeds were like the one or like the other; the gate keeps untrained ones out."""
    assert verdict(claim, measure(BY_HAND)).outcome == "SUPPORTED"
    assert verdict(claim, measure(UNTRAINED)).outcome == "NOT_APPLICABLE"


def test_an_effect_at_the_margin_decides_nothing():
    """Neither way."""
    assert verdict(CLAIM, {"gate": 1.0, "effect": 0.9}).outcome == "INCONCLUSIVE"
