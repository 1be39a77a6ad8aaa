"""M1, M2, M3: what gradient steps store."""

import pytest

from mnemoscope.systems.in_context_bigrams.claims.gradient_steps import M1, M2, M3, measure_gradient, measure_step
from tests.systems.on_trial import trouble, verdict

(CAPACITY,) = M2.rivals
(ORDER,) = M3.rivals
DRAWS = range(100, 104)


@pytest.mark.parametrize("claim", [M1, M2, CAPACITY, M3, ORDER], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


def test_the_formula_holds_on_every_draw():
    assert verdict(M1, [measure_gradient(draw) for draw in DRAWS]).outcome == "SUPPORTED"
    assert verdict(M1, {"effect": -8.9}).outcome == "REFUTED"


def test_width_decides():
    wide = [measure_step(draw, d=256) for draw in DRAWS]
    assert verdict(M2, wide).outcome == "SUPPORTED"
    assert verdict(CAPACITY, wide).outcome == "SUPPORTED"  # narrow embeddings are 32 wide, whatever d is
    assert verdict(M2, [measure_step(draw, d=32) for draw in DRAWS]).outcome == "REFUTED"


@pytest.mark.parametrize(
    ("recall", "outcome"),
    [((1.0, 1.0, 1.0), "SUPPORTED"), ((1.0, 1.0, 0.5), "REFUTED"), ((1.0, 1.0, 0.9), "INCONCLUSIVE")],
)
def test_all_three_memories_are_needed(recall, outcome):
    found = dict(zip(("output", "match", "previous"), recall, strict=True))
    assert verdict(M3, found).outcome == verdict(ORDER, found).outcome == outcome
