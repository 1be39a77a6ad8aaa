import numpy as np
import pytest

from mnemoscope.systems.retrieval.claims.curriculum import ANSWERS, R2, gives_up, knows, measure
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


def test_one_who_stops_a_step_before_is_wrong_about_the_last_symbol():
    assert measure(on(knows(), ANSWERS))["last"].mean() < 1e-2
    assert measure(on(gives_up(), ANSWERS))["last"].mean() == pytest.approx(1, abs=0.05)


def test_what_decides_it():
    noise = np.random.default_rng(0).normal(scale=0.2, size=500)

    def outcomes(*errors):
        return [verdict(claim, [{"last": error + noise} for error in errors]).outcome for claim in (R2, *R2.rivals)]

    assert outcomes(0.75) == ["SUPPORTED", "REFUTED"]
    assert outcomes(0.1) == ["REFUTED", "SUPPORTED"]
    assert outcomes(*[0.75] * 15, 0.5)[0] == "REFUTED", "one exception counts"


def test_its_controls_behave():
    assert misbehaving(R2) == {}
