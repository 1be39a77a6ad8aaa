"""I1 to I6: their controls, and what decides them."""

import pytest

from mnemoscope.systems.induction_formation.claims import (
    classes_and_labels,
    held_ideal,
    replaced,
    several_heads,
    wired,
)
from tests.systems.planting import misbehaving

CLAIMS = (
    several_heads.I1,
    wired.I2,
    held_ideal.I3,
    held_ideal.I4,
    classes_and_labels.I5,
    classes_and_labels.I5_SUBCIRCUITS,
    replaced.I6,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}
