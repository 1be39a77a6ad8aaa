import pytest

from mnemoscope.systems.retrieval.claims.reach import R1, measure, reached_in
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving


def test_the_count_exceeds_the_bound_by_what_can_be_computed_by_hand():
    """D = 4: without a mask ⌈log3 17⌉ = 3, with one ⌈log2 9⌉ = 4; the bound is log3 8 = 1.893."""
    found = measure(3)
    assert found["above_bound"] == pytest.approx(3 - 1.8928, abs=1e-4)
    assert (found["above_ceiling"], found["masked_more"]) == (1, 1)
    assert measure(3, mask="forward")["above_bound"] == pytest.approx(4 - 1.8928, abs=1e-4)


def test_what_decides_it():
    def outcomes(layers, masked=0.0):
        found = {**reached_in(8, layers), "masked_more": masked}
        return [verdict(claim, found).outcome for claim in (R1, *R1.rivals)]

    assert outcomes(3) == ["SUPPORTED", "SUPPORTED", "REFUTED"]
    assert outcomes(4, masked=1.0) == ["SUPPORTED", "REFUTED", "SUPPORTED"]
    assert outcomes(2)[0] == "REFUTED"


def test_its_controls_behave():
    assert misbehaving(R1) == {}
