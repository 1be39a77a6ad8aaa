from itertools import combinations, permutations

import pytest
import torch

from mnemoscope.analyses.shapley.game import coalitions, exact, pairs, shapley_interactions, shapley_values
from mnemoscope.core.errors import InputError
from tests.support import seeded

GLOVES = torch.tensor([0, 0, 0, 1, 0, 1, 0, 1]).double()  # of none, 0, 1, 01, 2, 02, 12, 012
"""Player 0 has a left glove, players 1 and 2 a right one each; a pair is worth 1."""


def table(n: int, seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randn(2**n, *shape, generator=seeded(seed), dtype=torch.double)


def worth(values, players) -> torch.Tensor:
    return values[sum(2**player for player in players)]


def test_the_glove_game_by_hand():
    """Player 0 comes last, or between the others, in four of six orders; each other one completes a pair in one."""
    assert shapley_values(GLOVES).tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert pairs(3).tolist() == [[0, 1], [0, 2], [1, 2]]
    # with no other one there 1, 1, 0; with the third one there 0, 0, -1; half of each
    assert shapley_interactions(GLOVES).tolist() == pytest.approx([0.5, 0.5, -0.5])


def test_rows_are_the_bits_of_their_number():
    assert coalitions(3)[5].tolist() == [True, False, True]
    assert coalitions(12).shape == (4096, 12)


@pytest.mark.parametrize("n", [2, 4, 5])
def test_values_are_averages_over_all_orders(n):
    values = table(n)
    gains = torch.zeros(n, dtype=torch.double)
    for order in (orders := list(permutations(range(n)))):
        for place, player in enumerate(order):
            gains[player] += worth(values, order[: place + 1]) - worth(values, order[:place])
    torch.testing.assert_close(shapley_values(values), gains / len(orders))


@pytest.mark.parametrize("n", [2, 4, 5])
def test_an_interaction_is_what_one_is_worth_with_the_other_less_what_it_is_worth_without(n):
    values, there = table(n), coalitions(n)
    for (i, j), found in zip(combinations(range(n), 2), shapley_interactions(values), strict=True):
        i_among_others = i - (j < i)
        with_j, without_j = (shapley_values(values[there[:, j] == here])[i_among_others] for here in (True, False))
        torch.testing.assert_close(found, with_j - without_j)


def test_values_add_up_to_what_all_are_worth_more_than_none():
    values = table(6)
    torch.testing.assert_close(shapley_values(values).sum(), values[-1] - values[0])


def test_equals_get_the_same():
    there = coalitions(5)
    number = (there[:, [0, 3, 2, 1, 4]].long() * 2 ** torch.arange(5)).sum(1)  # 1 and 3 exchanged
    values = table(5)
    values = values + values[number]
    found = shapley_values(values)
    torch.testing.assert_close(found[1], found[3])
    assert abs(float(found[0] - found[1])) > 0.01
    joint = dict(zip(map(tuple, pairs(5).tolist()), shapley_interactions(values).tolist(), strict=True))
    assert joint[0, 1] == pytest.approx(joint[0, 3])
    assert joint[1, 2] == pytest.approx(joint[2, 3])


def test_who_adds_nothing_gets_nothing_and_changes_nothing_for_the_others():
    values = table(4)
    with_idle = torch.cat((values, values))  # the last player's bit does not matter
    found = shapley_values(with_idle)
    assert found[4].item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(found[:4], shapley_values(values))
    idle = (pairs(5) == 4).any(1)
    joint = shapley_interactions(with_idle)
    torch.testing.assert_close(joint[idle], torch.zeros(4, dtype=torch.double))
    torch.testing.assert_close(joint[~idle], shapley_interactions(values))


@pytest.mark.parametrize("read", [shapley_values, shapley_interactions])
def test_both_are_linear_in_the_game(read):
    first, second = table(4, 0), table(4, 1)
    torch.testing.assert_close(read(2 * first - 3 * second), 2 * read(first) - 3 * read(second))
    both = torch.stack((first, second), -1)
    torch.testing.assert_close(read(both), torch.stack((read(first), read(second)), -1))


def test_parts_that_stand_in_for_each_other_and_parts_that_need_each_other():
    there = coalitions(3)[:, :2]
    either, both = there.any(1).double(), there.all(1).double()
    for values, sign in ((either, -1), (both, 1)):
        assert shapley_values(values).tolist() == pytest.approx([0.5, 0.5, 0])
        assert shapley_interactions(values).tolist() == pytest.approx([sign, 0, 0])


@pytest.mark.parametrize("interactions", [True, False])
def test_a_game_that_is_played_is_read_like_its_table(interactions):
    values = table(8, 0, 3)

    def play(there):
        assert len(there) <= 64
        return values[(there.long() * 2 ** torch.arange(8)).sum(1)]

    expected = [shapley_values(values), *([shapley_interactions(values)] if interactions else [])]
    torch.testing.assert_close(exact(play, 8, interactions=interactions), torch.cat(expected))


@pytest.mark.parametrize("read", [shapley_values, shapley_interactions])
def test_an_incomplete_table_is_refused(read):
    with pytest.raises(InputError, match=r"of every coalition, 2\^n for n players; got 6"):
        read(torch.zeros(6))
    with pytest.raises(InputError, match="the number of players of a table must be from 1 to 12; got 13"):
        read(torch.zeros(2**13))
