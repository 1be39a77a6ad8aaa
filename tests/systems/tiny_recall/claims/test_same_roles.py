"""T13: the same two roles in every seed, whatever they are."""

import numpy as np
import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.claims.same_roles import CLAIM, WAYS, measure, ways
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match, twin_elimination
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving

TASK = PermutationLookup(repeat_ratio=0.3)
(MOST,) = CLAIM.rivals


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_controls_behave(direction):
    assert misbehaving(CLAIM, direction=direction) == {}


def found(*shares):
    return {"gate": 1.0, **ways(np.array(shares))}


def test_there_are_six_ways_to_differ():
    assert list(WAYS) == [
        "values-repeat",
        "values-both",
        "values-nothing",
        "repeat-both",
        "repeat-nothing",
        "both-nothing",
    ]


def test_ways_by_hand():
    effects = found([0.9, 0.1], [0.2, 0.7])  # values with the first head, repeat with the second
    assert effects["values-repeat"] == pytest.approx(0.2)  # the smallest of .4, .4, .3, .2
    assert effects["values-both"] == pytest.approx(-0.4)  # with .1 of the values the second head is .4 short of both
    assert effects["both-nothing"] < 0
    assert found([0.1, 0.9], [0.7, 0.2])["values-repeat"] == effects["values-repeat"]  # whatever their numbers


@pytest.mark.parametrize("seed", range(20))
def test_two_heads_follow_one_way_at_most(seed):
    effects = ways(np.random.default_rng(seed).normal(0.5, 1.0, (2, 2)))
    assert sum(value > 0 for value in effects.values()) <= 1


def test_heads_that_do_the_same_have_no_two_roles():
    for shares in (([0.9, 0.9], [0.9, 0.9]), ([0.9, 0.9], [0.1, 0.1]), ([0.1, 0.1], [0.1, 0.1])):
        assert max(value for name, value in found(*shares).items() if name != "gate") < 0


def test_circuits_that_are_known():
    way = {}
    for make in (store_and_match, shared_store, dissociated):
        effects = measure(on(make(), TASK))
        (way[make.__name__],) = [name for name in WAYS if effects[name] > 0]
    assert way["store_and_match"] == "values-repeat"
    assert way["dissociated"] != "values-repeat"
    twins = measure(on(twin_elimination(), TASK))
    assert (twins["values, H0"], twins["values, H1"]) == pytest.approx((0.5, 0.5), abs=1e-4)


def test_any_way_will_do_if_all_seeds_agree():
    for shares in (([0.9, 0.1], [0.2, 0.7]), ([0.9, 0.1], [0.8, 0.2]), ([0.1, 0.1], [0.9, 0.2])):
        assert [verdict(claim, found(*shares)).outcome for claim in (CLAIM, MOST)] == ["SUPPORTED", "SUPPORTED"]


def test_one_exception_refutes_every_and_not_most():
    usual, other = found([0.9, 0.1], [0.2, 0.7]), found([0.9, 0.1], [0.8, 0.2])
    mixture = [*[usual] * 15, other]
    assert [verdict(claim, mixture).outcome for claim in (CLAIM, MOST)] == ["REFUTED", "SUPPORTED"]


def test_seeds_that_fall_into_three_ways_refute_both():
    three = [found([0.9, 0.1], [0.2, 0.7]), found([0.9, 0.1], [0.8, 0.2]), found([0.1, 0.1], [0.9, 0.2])]
    assert verdict(CLAIM, three).outcome == "REFUTED"
    assert verdict(MOST, three).outcome != "SUPPORTED"
    assert verdict(MOST, three, n=48).outcome == "INCONCLUSIVE"


def test_another_number_of_heads_is_refused():
    with pytest.raises(InputError, match="two heads"):
        measure(on(random_model(n_heads=1), TASK))
