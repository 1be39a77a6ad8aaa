import numpy as np
import pytest

from mnemoscope.systems.retrieval.circuit_effects import WAYS, ChainPath, of_paths, take_apart
from mnemoscope.systems.retrieval.claims.circuits import R5, R6, R6_FIRST, R8, R9
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import MINUTES
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving

PAIRS = [ChainPath(0, 1, 2 * step, 2 * step - 1, 0.0) for step in (1, 2, 3)]
HOPS = [ChainPath(step, 0, 0, 2 * step, 0.3 + step / 10) for step in (1, 2, 3)]


def effects(*paths, kept=0.01, **changes):
    return {**of_paths(list(paths), n_heads=32, kept=kept), "gate": 0.01, **changes}


def outcomes(claim, found):
    return [verdict(each, found).outcome for each in (claim, *claim.rivals)]


def test_the_effects_of_a_circuit_that_goes_forward():
    found = of_paths([*PAIRS, *HOPS], n_heads=32, kept=0.02)
    assert (found["paths"], found["heads"], found["share"], found["spare"]) == (6, 4, 4 / 32, 1)
    assert (found["pairs_first"], found["query_first"]) == (1, 0)
    assert (found["removed"], found["at_query"]) == pytest.approx((0.4, 0.4))
    assert (found["elsewhere"], found["first"], found["kept"]) == (0, 0, 0.02)
    assert {way: found[way] for way in WAYS} == {"forward": 1, "back_2": 0, "back_3": 0, "back_both": 0}
    assert found["not_straight"] == 0


@pytest.mark.parametrize(
    ("way", "back"),
    [
        ("back_2", [ChainPath(1, 1, 3, 2, 0.1)]),
        ("back_3", [ChainPath(1, 1, 5, 4, 0.1)]),
        ("back_both", [ChainPath(1, 1, 6, 2, 0.1), ChainPath(1, 2, 4, 2, 0.1)]),
    ],
)
def test_every_circuit_goes_one_way(way, back):
    found = of_paths([*PAIRS, *HOPS, *back], n_heads=32, kept=0.0)
    assert [name for name in WAYS if found[name]] == [way]
    assert found["not_straight"] == 1


def test_where_no_path_is_needed_nothing_is_claimed():
    found = effects()
    assert all(verdict(claim, found).outcome == "REFUTED" for claim in (R5, R6, R8, R9))


def test_what_decides_r5_r6_and_r9():
    forward = effects(*PAIRS, *HOPS)
    assert outcomes(R5, forward) == ["SUPPORTED", "REFUTED"]
    assert outcomes(R5, effects(*HOPS)) == ["REFUTED", "SUPPORTED"]
    assert outcomes(R6, forward) == ["SUPPORTED", "SUPPORTED"]
    late = effects(*PAIRS[:1], *HOPS, ChainPath(2, 3, 4, 3, 0.01))
    assert outcomes(R6, late) == ["REFUTED", "SUPPORTED"], "a path within a pair costs little in any layer"
    assert outcomes(R6_FIRST, forward) == ["SUPPORTED"]
    assert outcomes(R6_FIRST, effects(*HOPS)) == ["REFUTED"]
    assert outcomes(R9, forward) == ["SUPPORTED", "REFUTED"]
    assert outcomes(R9, effects(*PAIRS, *HOPS[:2])) == ["REFUTED", "REFUTED"]


def test_a_circuit_that_is_not_straight_is_different_and_one_way_in_most_seeds_the_same():
    straight, back = effects(*PAIRS, *HOPS), effects(*PAIRS, *HOPS, ChainPath(1, 1, 5, 4, 0.1))
    assert outcomes(R8, straight) == ["REFUTED", "SUPPORTED"]
    assert outcomes(R8, back) == ["SUPPORTED", "SUPPORTED"]
    assert outcomes(R8, effects(*PAIRS, *HOPS[1:])) == ["SUPPORTED", "SUPPORTED"], "no hop to the first pair"
    other = effects(*PAIRS, *HOPS, ChainPath(1, 1, 3, 2, 0.1))
    assert outcomes(R8, [straight, back, other])[1] != "SUPPORTED"


def test_the_circuit_of_two_steps_that_was_built_in_is_measured():
    found = take_apart(on(chain_follower(2), Retrieval(n_steps=2)))
    assert (found["paths"], found["heads"], found["spare"]) == (4, 3, 0)
    assert (found["pairs_first"], found["forward"]) == (1, 1)
    assert found["kept"] < 0.01
    assert found["removed"] > 0.12
    assert found["first"] < 0.05
    assert found["gate"] < 0.01
    assert np.isnan(found["induction_first"]), "it was not followed along training"


@pytest.mark.parametrize("claim", [pytest.param(R5, marks=MINUTES), R6, R6_FIRST, R8, R9], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}
