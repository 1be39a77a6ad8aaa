"""R10: what its controls measure, and what decides it."""

import math

import pytest

from mnemoscope.claims import GATE
from mnemoscope.core.errors import InputError
from mnemoscope.systems.retrieval.claim_parts import CHAINS
from mnemoscope.systems.retrieval.claims.held_ideal import HELD, R10, UNITS, compared, measure
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving


def test_its_controls_behave():
    assert misbehaving(R10) == {}
    assert [misbehaving(rival) for rival in R10.rivals] == [{}, {}]


def test_the_clamp_is_in_one_of_two_models_alone():
    recipes = {name: unit.spec(136).recipe for name, unit in UNITS.items()}
    assert recipes[CHAINS].clamps == ()
    assert [str(clamp) for clamp in recipes[HELD].clamps] == ["L0H0 pattern=pattern previous token"]


def test_what_a_planted_training_gains():
    (plant,) = [control.plant for control in R10.controls if control.name == "the last stays"]
    found = effects_of(R10, plant)
    gains = [found[f"{part}_gain"] for part in ("x1", "x2", "x3")]
    assert gains == pytest.approx([150, 150, 0], abs=1)
    assert found["first_forward"] == pytest.approx(math.log2(325 / 175), abs=0.01), "half-way between logged steps"
    assert (found["x2_passed_on"], found["x3_passed_on"]) == pytest.approx((75, -75), abs=1)


def test_the_worse_of_two_models_has_to_follow_the_chain():
    learned = {"x1": 300, "x2": 500, "x3": 700, GATE: 0.01}
    last_missed = {**learned, "x3": 5000, GATE: 0.7}
    for free, held in ((learned, last_missed), (last_missed, learned)):
        found = {name: float(value) for name, value in compared({CHAINS: free, HELD: held}).items()}
        assert found[GATE] == 0.7
        assert verdict(R10, found).n == 0


def test_a_run_without_metrics_is_refused():
    with pytest.raises(InputError, match="keep metrics"):
        measure(on(chain_follower(3), Retrieval(n_steps=3)))


@pytest.mark.parametrize(
    ("first", "second", "third", "expected"),
    [
        (0.8, 75, 75, ["SUPPORTED", "REFUTED", "REFUTED"]),
        (0.8, 75, -75, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (0.8, -75, 75, ["REFUTED", "REFUTED", "REFUTED"]),
        (0.0, 75, 75, ["REFUTED", "REFUTED", "SUPPORTED"]),
        (-0.8, 75, 75, ["REFUTED", "REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_it(first, second, third, expected):
    found = {"first_forward": first, "x2_passed_on": second, "x3_passed_on": third, "gate": 0.01}
    assert [verdict(each, found).outcome for each in (R10, *R10.rivals)] == expected
