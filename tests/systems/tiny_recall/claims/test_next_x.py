"""T25: whether the next x can be predicted."""

import pytest
import torch

from mnemoscope.systems.tiny_recall.claims.next_x import CLAIM, N_COUNTED, advantages, independent, measure
from tests.systems.on_trial import trouble, verdict

(UNUSED,) = CLAIM.rivals


@pytest.mark.parametrize("claim", [CLAIM, UNUSED], ids=lambda claim: claim.id)
@pytest.mark.parametrize("repeats", [0.0, *CLAIM.factors["repeats"]])
def test_controls_behave(claim, repeats):
    assert trouble(claim, repeats=repeats, most=4) is None


def test_counting_by_hand():
    usual, rare = [1, 2, 3, 4, 5], [1, 3, 2, 4, 5]
    counted = [usual, usual, rare, usual] * (N_COUNTED // 4)
    found = advantages(torch.tensor(counted + [usual] * 3 + [rare]), 5)
    # after {1}: 2, right in three of four; {1, 2} and {1, 3} tell the rest
    assert found == pytest.approx({"slot_2": 0.55, "slot_3": 0.8, "slot_4": 0.8, "slot_5": 0.8, "effect": 0.8})


def test_the_order_of_x_so_far_is_not_looked_at():
    rows = [[1, 2, 3, 4, 5], [2, 1, 4, 3, 5]] * (N_COUNTED // 2)
    found = advantages(torch.tensor([*rows, *rows[:2]]), 5)
    assert found["slot_3"] == pytest.approx(0.3)  # {1, 2} comes before 3 and before 4


def test_a_set_that_was_never_seen_is_a_guess_of_one():
    rows = [[1, 2, 3, 4, 5]] * N_COUNTED
    found = advantages(torch.tensor([*rows, [3, 1, 2, 4, 5], [3, 2, 1, 4, 5]]), 5)
    assert found["slot_2"] == pytest.approx(1 / 2 - 1 / 5)


def test_a_permutation_ends_in_what_is_left():
    found = [measure(draw) for draw in range(16)]
    assert [case["slot_5"] for case in found] == pytest.approx([0.8] * 16)
    assert verdict(CLAIM, found).outcome == "REFUTED"
    assert verdict(UNUSED, found).outcome == "SUPPORTED"


def test_independent_x_are_supported():
    found = [independent(case)["draw"] for case in range(16)]
    assert verdict(CLAIM, found).outcome == "SUPPORTED"
    assert verdict(UNUSED, found).outcome == "REFUTED"


def test_repeats_hide_the_last_x_in_part():
    advantage = measure(0, repeats=0.3)["slot_5"]
    assert advantage == pytest.approx(0.7 - 0.2, abs=0.06)  # four standard errors of a share of 1,000
    assert measure(0) == measure(0)
