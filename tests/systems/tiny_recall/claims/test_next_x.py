"""T25: whether the next x can be predicted beyond what is left."""

import pytest
import torch

from mnemoscope.systems.tiny_recall.claims.next_x import (
    CLAIM,
    advantages,
    in_order,
    independent,
    measure,
    one_in_ten,
    permuted,
)
from tests.systems.on_trial import trouble, verdict

(UNUSED,) = CLAIM.rivals


@pytest.mark.parametrize("claim", [CLAIM, UNUSED], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim, most=4) is None


def test_counting_by_hand():
    usual, rare = [1, 2, 3, 4, 5], [1, 3, 2, 4, 5]
    x = torch.tensor([usual, usual, rare, usual] * 10 + [usual] * 30 + [rare] * 10)  # tested on the last 40
    found = advantages(x, x)
    # after {1}: 2, right in three of four, of 1 in 4; {1, 2} and {1, 3} tell the rest, of 1 in 3, 2 and 1
    expected = {2: 0.75 - 1 / 4, 3: 1 - 1 / 3, 4: 1 - 1 / 2, 5: 0}
    for slot, value in expected.items():
        assert found[f"left, slot {slot}"] == pytest.approx(value), slot
    assert found["effect"] == pytest.approx(2 / 3)
    assert found["last"] == pytest.approx(0.8)


def test_contexts_differ_in_what_they_tell():
    x = torch.tensor([[1, 2, 3, 4, 5], [2, 1, 4, 3, 5]] * 40)
    y = torch.tensor([[1, 2, 3, 4, 5], [1, 3, 2, 4, 5]] * 40)
    found = advantages(x, y)
    assert found["left, slot 3"] == pytest.approx(1 / 2 - 1 / 3)  # {1, 2} comes before 3 and before 4
    assert found["ordered, slot 3"] == pytest.approx(1 - 1 / 3)
    assert found["with y, slot 3"] == pytest.approx(1 - 1 / 3)  # the second y is 2 or 3


def test_what_is_left_is_all_that_a_permutation_tells():
    found = [measure(draw) for draw in range(16)]
    assert [case["left, slot 5"] for case in found] == pytest.approx([0] * 16)
    assert [verdict(claim, found).outcome for claim in (CLAIM, UNUSED)] == ["SUPPORTED"] * 2
    assert measure(0) == measure(0)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (permuted, ["SUPPORTED", "SUPPORTED"]),
        (in_order, ["REFUTED", "SUPPORTED"]),
        (one_in_ten, ["REFUTED", "SUPPORTED"]),
        (independent, ["REFUTED", "REFUTED"]),
    ],
)
def test_planted_sequences_decide(plant, expected):
    found = [plant(case)["draw"] for case in range(16)]
    assert [verdict(claim, found).outcome for claim in (CLAIM, UNUSED)] == expected


def test_one_sequence_in_ten_tells_a_tenth_of_three_quarters():
    """x1 = 1 in .1 + .9 / 5 of the sequences, and then x2 = 2 in (.1 + .9 / 20) / .28; after others chance remains."""
    found = one_in_ten(0)["draw"]
    expected = (0.1 + 0.9 / 20) + 0.72 / 4 - 1 / 4
    assert found["left, slot 2"] == pytest.approx(expected, abs=0.03)  # four standard errors of a share of 5,000
    assert found["effect"] > 0.06
