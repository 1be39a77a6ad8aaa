"""Each claim and its rivals: what is planted gets the right verdict, and nothing passes for it."""

import numpy as np
import pytest

from mnemoscope.claims.claim import CLAIMS, GATE
from tests.systems.on_trial import trouble, verdict

IDS = ["G1", "G2", "G2-lead", "G3", "G4", "G5", "G6"]
ALL = [one for id in IDS for claim in [CLAIMS.get(id)] for one in (claim, *claim.rivals)]


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)
@pytest.mark.parametrize(("beyond", "outcome"), [(0.05, "SUPPORTED"), (-0.05, "REFUTED")])
def test_effects_beside_the_margin_decide(claim, beyond, outcome):
    effects = {part.name: part.margin + beyond for part in claim.criteria}
    assert verdict(claim, {**effects, GATE: 1.0}).outcome == outcome


@pytest.mark.parametrize("id", IDS)
def test_a_model_that_cannot_do_the_task_is_not_judged(id):
    claim = CLAIMS.get(id)
    effects = {part.name: part.margin + 1 for part in claim.criteria}
    assert verdict(claim, {**effects, GATE: np.nan}).outcome == "NOT_APPLICABLE"
