"""T15: a second head makes recall possible."""

import pytest

from mnemoscope.models.subjects import planted, untrained
from mnemoscope.systems.tiny_recall.claims.second_head import CLAIM, UNITS, compare, measure, outcome
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.planting import misbehaving, numbers, outcomes

TASK = PermutationLookup(repeat_ratio=0.3)


def test_controls_behave():
    assert misbehaving(CLAIM) == {}


def test_effects_by_hand():
    effects = compare(outcome(0.1, 0.5, 0.3, 0.9, 0.4))
    assert effects == pytest.approx({"second_head": 0.4, "width": 0.4, "narrow": 0.5})  # min(.9 - .3, .5 - .1)


@pytest.mark.parametrize(
    ("recall", "expected"),
    [
        ((0.1, 1.0, 0.2, 1.0, 0.2), ["SUPPORTED", "REFUTED", "REFUTED"]),
        ((0.1, 0.3, 0.2, 1.0, 0.2), ["REFUTED", "REFUTED", "SUPPORTED"]),  # at width 32 only
        ((0.1, 0.5, 0.2, 1.0, 1.0), ["REFUTED", "SUPPORTED", "SUPPORTED"]),
    ],
)
def test_verdicts_on_planted_outcomes(recall, expected):
    assert list(outcomes(CLAIM, numbers(outcome(*recall))).values()) == expected


def two_heads_recall(case):
    recalls = {"d16h2", "v3"}
    makes = {name: dissociated if name in recalls else elimination_only for name in UNITS}
    return {name: planted(name, make, TASK)(case)[name] for name, make in makes.items()}


def test_models_in_place_of_the_table():
    assert measure(two_heads_recall(0)["v3"]) == {"recall": 1.0}
    assert outcomes(CLAIM, two_heads_recall)["T15"] == "SUPPORTED"
    assert outcomes(CLAIM, untrained(UNITS))["T15"] == "REFUTED"
