"""M4, M4-mlp, M4-outer: controls, and verdicts on capacities that are known."""

import math

import pytest

from mnemoscope.systems.memory_theory.claim_parts import by_law, capacities, effects, half_powers, like_width
from mnemoscope.systems.memory_theory.claims.matrix import M4, measure
from mnemoscope.systems.memory_theory.claims.mlp import M4_MLP
from mnemoscope.systems.memory_theory.claims.mlp import measure as measure_mlp
from mnemoscope.systems.memory_theory.claims.outer_product import M4_OUTER
from mnemoscope.systems.memory_theory.claims.outer_product import measure as measure_sum
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving

CLAIMS = [M4, M4_MLP, M4_OUTER]
SIZES = (8, 16, 32, 64)


def of(stored):
    return {**effects(capacities({d: stored(d) for d in SIZES})), "theory": 0.0}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert not misbehaving(claim)


def test_sizes_are_half_powers():
    assert half_powers(8, 64) == (8, 11, 16, 23, 32, 45, 64)
    assert half_powers(32, 64) == (32, 45, 64)


def test_effects_of_a_law_are_none():
    found = of(by_law)
    assert found["law"] == pytest.approx(0, abs=1e-9)
    assert found["per_parameter"] == pytest.approx(0, abs=1e-9)
    assert found["share"] == pytest.approx(1 / math.log(by_law(64)))


def test_effects_of_a_power_of_d():
    found = of(lambda d: float(d))
    assert found["plain"] == pytest.approx(-0.5)
    assert found["width"] == pytest.approx(0)
    assert found["share"] == 1 / 64
    assert found["n_16"] == 16


def test_where_nothing_is_stored_nothing_grows():
    found = of(lambda d: 0.0)
    assert (found["law"], found["per_parameter"], found["share"]) == (-1, -12, 0)  # 1 / 64², in factors of two


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_known_laws_get_their_verdicts(claim):
    def outcomes(stored):
        return {one.id.removeprefix(claim.id): verdict(one, of(stored)).outcome for one in (claim, *claim.rivals)}

    law, width = outcomes(by_law), outcomes(like_width)
    assert (law[""], law["-width"]) == ("SUPPORTED", "REFUTED")
    assert (width[""], width["-width"], width["-fewer"]) == ("REFUTED", "SUPPORTED", "SUPPORTED")
    if "-plain" in law:
        assert law["-plain"] == "REFUTED"
        assert outcomes(lambda d: d**2 / 2)["-plain"] == "SUPPORTED"


def test_a_slope_of_one_is_not_enough():
    found = of(lambda d: by_law(d, share=1 / 16))
    assert found["law"] == pytest.approx(0, abs=1e-9)
    assert verdict(M4, found).outcome == "REFUTED"


def test_a_draw_is_measured_at_every_size():
    found = measure(1000, largest=11)
    assert {"n_8", "n_11"} == {name for name in found if name.startswith("n_")}
    assert {"n_8", "n_11"} == {name for name in measure_mlp(1000, largest=11) if name.startswith("n_")}
    assert "theory" in measure_sum(1000, largest=45)
