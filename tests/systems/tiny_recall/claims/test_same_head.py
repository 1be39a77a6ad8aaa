"""T21: v1's head and v3's elimination head."""

import pytest
import torch

from mnemoscope.systems.tiny_recall.claims.same_head import CLAIM, difference, elimination_head
from mnemoscope.systems.tiny_recall.constructed import dissociated
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model
from tests.systems.on_trial import on, trouble, verdict

TASK = PermutationLookup(repeat_ratio=0.3)
(DIFFERENT,) = CLAIM.rivals


@pytest.mark.parametrize("claim", [CLAIM, DIFFERENT], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


def test_differences_by_hand():
    units = {
        "v1": {"gate": 0.995, "share": 0.5, "copying": -0.5},
        "v3": {"gate": 1.0, "share": 0.75, "copying": 0.25},
    }
    found = difference(units)
    assert (found["gate"], found["attention"], found["copying"]) == (0.995, 0.25, 0.75)
    assert found == difference({"v3": units["v3"], "v1": units["v1"]})


def test_the_planted_head_by_hand():
    found = elimination_head(on(dissociated(), TASK))
    assert (found["gate"], found["share"]) == pytest.approx((1, 1))
    assert found["copying"] == pytest.approx(-1)  # each value that it finds is ruled out, and no other


def test_a_head_that_looks_elsewhere_is_refuted():
    scattered = dissociated()
    with torch.no_grad():
        scattered.blocks[0].attn.W_Q[0] = 0
    measured = {name: elimination_head(on(model, TASK)) for name, model in (("v1", dissociated()), ("v3", scattered))}
    found = difference(measured)
    assert found["gate"] == 1
    assert found["attention"] == pytest.approx(1 - 4 / 9)
    assert found["copying"] == pytest.approx(0, abs=1e-6)
    assert verdict(CLAIM, found).outcome == "REFUTED"
    assert verdict(DIFFERENT, found).outcome == "SUPPORTED"


def test_v1_has_one_head_and_no_recall_to_pass():
    found = elimination_head(on(random_model(n_heads=1, n_ctx=9), PermutationLookup()))
    assert -1 <= found["copying"] <= 1
    assert 0 < found["share"] < 1
