from itertools import combinations, pairwise, permutations

import pytest
import torch

from mnemoscope.analyses.games import (
    coalitions,
    error_and_margin,
    exact_values,
    latin_square,
    n_played,
    player_pairs,
    sample_values,
)
from tests.analyses.shapley.tables import played, shapley_interactions, shapley_values
from tests.support import global_generators_untouched, seeded

GLOVES = torch.tensor([0, 0, 0, 1, 0, 1, 0, 1]).double()  # of none, 0, 1, 01, 2, 02, 12, 012
"""Player 0 has a left glove, players 1 and 2 a right one each; a pair is worth 1."""


def table(n: int, seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randn(2**n, *shape, generator=seeded(seed), dtype=torch.double)


def worth(values, players) -> torch.Tensor:
    return values[sum(2**player for player in players)]


def test_the_glove_game_by_hand():
    """Player 0 comes last, or between the others, in four of six orders; each other one completes a pair in one."""
    assert shapley_values(GLOVES).tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert player_pairs(3).tolist() == [[0, 1], [0, 2], [1, 2]]
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
    joint = dict(zip(map(tuple, player_pairs(5).tolist()), shapley_interactions(values).tolist(), strict=True))
    assert joint[0, 1] == pytest.approx(joint[0, 3])
    assert joint[1, 2] == pytest.approx(joint[2, 3])


def test_who_adds_nothing_gets_nothing_and_changes_nothing_for_the_others():
    values = table(4)
    with_idle = torch.cat((values, values))  # the last player's bit does not matter
    found = shapley_values(with_idle)
    assert found[4].item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(found[:4], shapley_values(values))
    idle = (player_pairs(5) == 4).any(1)
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


def test_coalitions_are_played_in_parts_and_pairs_only_where_asked_for():
    values, asked = table(8, 0, 3), []
    whole = exact_values(played(values, asked), 8)
    assert (max(asked), sum(asked)) == (64, 256)
    torch.testing.assert_close(exact_values(played(values), 8, interactions=False), whole[:8])


def read(values) -> torch.Tensor:
    return torch.cat((shapley_values(values), shapley_interactions(values)))[:, None]


def estimates(values, n_samples: int = 1, **arguments) -> torch.Tensor:
    n = len(values).bit_length() - 1
    return torch.stack(list(sample_values(played(values), n, **{"n_samples": n_samples, "seed": 0, **arguments})))


@pytest.mark.parametrize("n", range(2, 11))
def test_a_square_has_every_player_in_every_place_every_neighbour_and_every_reverse(n):
    square, size = latin_square(n), n + n % 2
    everyone = set(range(size))
    assert all(set(line.tolist()) == everyone for line in (*square, *square.T))
    neighbours = [tuple(pair) for row in square.tolist() for pair in pairwise(row)]
    assert sorted(neighbours) == sorted(permutations(range(size), 2))
    rows = {tuple(row) for row in square.tolist()}
    assert rows == {row[::-1] for row in rows}


@pytest.mark.parametrize("n", [2, 3, 6, 7])
def test_one_sample_is_exact_where_no_three_work_together(n):
    there = coalitions(n).double()
    alone, together = torch.randn(n, generator=seeded()).double(), torch.randn(n, n, generator=seeded(1)).double()
    values = there @ alone + torch.einsum("ci,ij,cj->c", there, together.triu(1), there)
    torch.testing.assert_close(estimates(values)[0], read(values))
    first, second = player_pairs(n).T
    torch.testing.assert_close(estimates(values)[0, n:, 0], together[first, second])


def test_one_sample_is_exact_where_only_the_number_of_players_counts():
    values = coalitions(6).sum(1).double() ** 3
    torch.testing.assert_close(estimates(values)[0], read(values))


@pytest.mark.parametrize("n", [5, 6])
def test_every_sample_shares_out_everything_and_gives_the_idle_nothing(n):
    values = torch.randn(2 ** (n - 1), generator=seeded()).double().repeat(2)  # the last player does nothing
    found = estimates(values, 5)
    torch.testing.assert_close(found[:, :n, 0].sum(1), (values[-1] - values[0]).expand(5))
    idle = torch.cat((torch.arange(n) == n - 1, (player_pairs(n) == n - 1).any(1)))
    assert found[:, idle].abs().max() < 1e-12


@pytest.mark.parametrize("n", [3, 4])
def test_samples_are_unbiased(n, monkeypatch):
    """Over all ways to shuffle the symbols the mean is exact."""
    values, ways = torch.randn(2**n, generator=seeded()).double(), list(permutations(range(4)))
    drawn = iter(ways)
    monkeypatch.setattr(torch, "randperm", lambda size, **_: torch.tensor(next(drawn)))
    torch.testing.assert_close(estimates(values, len(ways)).mean(0), read(values))


@pytest.mark.parametrize(("n", "game"), [(6, "random"), (7, "votes")])
def test_intervals_cover_the_exact_values(n, game):
    """Of 60 intervals for each of 20 games about 95 % hold the truth: of players, and of pairs."""
    values = torch.randn(2**n, 20, generator=seeded()).double()
    if game == "votes":  # the share of 50 similar votes that a coalition wins, each with a third of the weight
        weights = torch.rand(n, 1, 20, generator=seeded()) + 0.3 * torch.rand(n, 50, 20, generator=seeded(1))
        won = torch.einsum("cp,pvg->cvg", coalitions(n).float(), weights) > weights.sum(0) / 3
        values = won.double().mean(1)
    truth = torch.cat((shapley_values(values), shapley_interactions(values)))
    found = torch.stack(list(sample_values(played(values), n, n_samples=60 * 8, seed=0))).unflatten(0, (60, 8))
    covered = [(part.mean(0) - truth).abs() <= error_and_margin(part)[1] + 1e-12 for part in found]
    share = torch.stack(covered).double().mean((0, 2))
    assert (share[:n].mean() - 0.95).abs() < 0.03
    assert (share[n:].mean() - 0.95).abs() < 0.03


def test_the_error_of_a_mean_by_hand():
    error, half = error_and_margin(torch.tensor([1.0, 2.0, 3.0, 6.0]).double())
    assert error.item() == pytest.approx((14 / 3) ** 0.5 / 2)
    assert half.item() == pytest.approx(3.182446 * error.item())  # t with 3 degrees of freedom


def test_squares_beat_orders_drawn_one_by_one():
    """Over coalitions of six players, a threshold of four at equal cost."""
    values = torch.randn(64, generator=seeded()).double() + 2 * (coalitions(6).sum(1) >= 4)
    truth, stream = shapley_values(values), seeded(3)
    ours = (estimates(values, 300, interactions=False)[..., 0] - truth).square().mean()
    drawn = []
    for _ in range(300):
        gains = torch.zeros(6, dtype=torch.double)
        for _ in range(6):
            order = torch.randperm(6, generator=stream)
            number = torch.cat((torch.zeros(1).long(), (2**order).cumsum(0)))
            gains[order] += values[number].diff() / 6
        drawn.append((gains - truth).square().mean())
    assert ours < 0.7 * torch.stack(drawn).mean()


def test_values_alone_cost_half():
    values = torch.randn(2**5, generator=seeded()).double()
    for interactions in (True, False):
        log = []
        found = list(sample_values(played(values, log), 5, n_samples=3, seed=0, interactions=interactions))
        assert sum(log) == 3 * n_played(5, interactions) == 3 * 6 * (12 if interactions else 7)
        assert [len(part) for part in found] == [15 if interactions else 5] * 3
    torch.testing.assert_close(estimates(values, 2)[:, :5], estimates(values, 2, interactions=False))


def test_orders_follow_the_seed_and_nothing_else():
    values = torch.randn(2**5, generator=seeded()).double()
    with global_generators_untouched():
        first = estimates(values, 3)
    assert torch.equal(first, estimates(values, 3))
    assert not torch.equal(first, estimates(values, 3, seed=1))
    assert torch.equal(estimates(values, 2), first[:2])
