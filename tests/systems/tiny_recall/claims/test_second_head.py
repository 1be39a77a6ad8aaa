"""T15: a second head makes recall possible, by width; twice the width does not."""

import pytest

from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.second_head import T15, T15_NARROW, T15_WIDE, measure
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, partial_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.planting import effects_of, misbehaving, numbers, outcomes

TASK = PermutationLookup(repeat_ratio=0.3)
BY_WIDTH = [(T15, "v2", "v3"), (T15_NARROW, "d16h1", "d16h2")]


@pytest.mark.parametrize("claim", [T15, T15_NARROW, T15_WIDE], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}


@pytest.mark.parametrize(("claim", "one", "two"), BY_WIDTH)
@pytest.mark.parametrize(
    ("one_head", "two_heads", "effect", "expected"),
    [
        (0.2, 0.9, 0.275, ["SUPPORTED", "REFUTED", "REFUTED"]),  # min(.9 - .625, .625 - .2)
        (0.9, 1.0, -0.275, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (0.2, 0.3, -0.325, ["REFUTED", "REFUTED", "SUPPORTED"]),
        (0.625, 1.0, 0.0, ["INCONCLUSIVE", "INCONCLUSIVE", "REFUTED"]),
    ],
)
def test_verdicts_by_hand(claim, one, two, one_head, two_heads, effect, expected):
    planted_numbers = numbers({one: {"recall": one_head}, two: {"recall": two_heads}})
    assert effects_of(claim, planted_numbers)["effect"] == pytest.approx(effect)
    assert list(outcomes(claim, planted_numbers).values()) == expected


def wide(make):
    return set_by_hand("d64h1", make, TASK)


def test_a_wide_head_that_recalls_refutes():
    assert measure(wide(dissociated)(0)["d64h1"]) == {"elimination": 1.0, "recall": 1.0}
    assert list(outcomes(T15_WIDE, wide(dissociated)).values()) == ["REFUTED", "SUPPORTED"]
    assert list(outcomes(T15_WIDE, wide(elimination_only)).values()) == ["SUPPORTED", "REFUTED"]
    # three tokens of five are just nearer to a guess than to always
    assert list(outcomes(T15_WIDE, wide(partial_recall)).values()) == ["SUPPORTED", "REFUTED"]


@pytest.mark.parametrize("claim", [T15, T15_NARROW])
def test_untrained_models_refute(claim):
    assert outcomes(claim, untrained(claim.units))[claim.id] == "REFUTED"
