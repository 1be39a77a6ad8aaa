"""T14: the double dissociation."""

from dataclasses import replace

import pytest

from mnemoscope.claims.claim import EFFECT, GATE
from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import roles_by_carrying
from mnemoscope.systems.tiny_recall.claims.split import CLAIM, measure, outcome
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.planting import effects_of, misbehaving, outcomes, verdict

TASK = PermutationLookup(repeat_ratio=0.3)
*BY_REMOVAL, CARRIERS = CLAIM.rivals
COSTS = replace(CLAIM, rivals=tuple(BY_REMOVAL))


def plant(make):
    return set_by_hand("v3", make, TASK)


def test_costs_of_a_circuit_that_is_known():
    measured = effects_of(CLAIM, plant(dissociated))
    # Without head 0 no value is ruled out, and the lowest is answered: right in 1 of 5. Without head 1 nothing recalls.
    assert measured["L0H0 elimination"] == pytest.approx(0.8)
    assert measured["L0H0 recall"] == measured["L0H1 elimination"] == 0
    assert measured["L0H1 recall"] == 1
    assert measured[EFFECT] == pytest.approx(0.25)  # the smallest of .8 - M, M - 0, 1 - M, M - 0
    assert measured[GATE] == 1


def test_the_number_of_a_head_does_not_matter():
    by_hand = outcome((0.5, 0.1), (0.2, 0.9), (0.6, 0.9))["v3"]
    assert by_hand[EFFECT] == pytest.approx(0.05)  # the smallest of .25, .15, .65, .05
    assert outcome((0.2, 0.9), (0.5, 0.1), (0.6, 0.9))["v3"] == by_hand


@pytest.mark.parametrize(
    "factors",
    [
        {},
        {"kind": "zero"},
        {"kind": "resample"},
        {"within": "all sequences"},
        {"metric": "log_prob"},
    ],
)
def test_controls_behave(factors):
    assert misbehaving(COSTS, **factors) == {}


@pytest.mark.parametrize("direction", ["noising", "denoising"])
def test_controls_of_carriers_behave(direction):
    assert misbehaving(CARRIERS, direction=direction) == {}


def test_verdicts_on_planted_circuits():
    refuted = {rival.id: "REFUTED" for rival in BY_REMOVAL}
    assert outcomes(COSTS, plant(dissociated)) == {"T14": "SUPPORTED", **refuted}
    assert outcomes(COSTS, plant(shared_store)) == {"T14": "REFUTED", **refuted, "T14-single": "SUPPORTED"}
    assert outcomes(CARRIERS, plant(store_and_match)) == {"T14-carriers": "SUPPORTED"}
    assert outcomes(CARRIERS, plant(dissociated)) == {"T14-carriers": "REFUTED"}


def test_some_seeds_of_either_kind_decide_nothing():
    split, shared = (effects_of(CLAIM, plant(make)) for make in (dissociated, shared_store))
    assert verdict(CLAIM, [split, shared]).outcome == "MIXED"


def test_untrained_models_do_not_pass():
    for claim in (COSTS, CARRIERS):
        assert set(outcomes(claim, untrained(CLAIM.units)).values()) == {"NOT_APPLICABLE"}


def test_other_numbers_of_heads_are_refused():
    subject = plant(two_layer_recall)(0)["v3"]
    with pytest.raises(InputError, match="must have two heads in all"):
        measure(subject)
    assert roles_by_carrying(subject)[GATE] == 1  # two heads in the layer that is asked
