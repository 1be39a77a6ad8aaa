"""The claim half-the-heads before any trial: its measure tells the controls apart."""

import pytest
from half_the_heads.claims import CLAIM, measure

from mnemoscope.claims import EFFECT, GATE


@pytest.mark.parametrize("control", CLAIM.controls, ids=lambda control: control.name)
def test_a_positive_control_meets_the_claim_and_a_negative_one_does_not(control):
    """The cases of every control."""
    for case in range(control.n):
        [subject] = control.plant(case).values()
        found = measure(subject)
        assert (found[EFFECT] > CLAIM.margin) == (control.kind == "positive")
        assert bool(CLAIM.gate.passes(found[GATE])) == (control.name != "untrained")
