from itertools import pairwise, permutations

import pytest
import torch

from mnemoscope.analyses.shapley.game import coalitions, pairs, shapley_interactions, shapley_values
from mnemoscope.analyses.shapley.sampled import n_played, orders, samples, spread
from tests.support import global_generators_untouched, seeded


def played(values, log: list[int] | None = None):
    """A table as a game, which logs how many coalitions it was asked for."""
    n = len(values).bit_length() - 1

    def play(there):
        if log is not None:
            log.append(len(there))
        return values[(there.long() * 2 ** torch.arange(n)).sum(1)].view(len(there), -1)

    return play


def read(values) -> torch.Tensor:
    return torch.cat((shapley_values(values), shapley_interactions(values)))[:, None]


def estimates(values, n_samples: int = 1, **arguments) -> torch.Tensor:
    n = len(values).bit_length() - 1
    return torch.stack(list(samples(played(values), n, **{"n_samples": n_samples, "seed": 0, **arguments})))


@pytest.mark.parametrize("n", range(2, 11))
def test_a_square_has_every_player_in_every_place_every_neighbour_and_every_reverse(n):
    square, size = orders(n), n + n % 2
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
    first, second = pairs(n).T
    torch.testing.assert_close(estimates(values)[0, n:, 0], together[first, second])


def test_one_sample_is_exact_where_only_the_number_of_players_counts():
    values = coalitions(6).sum(1).double() ** 3
    torch.testing.assert_close(estimates(values)[0], read(values))


@pytest.mark.parametrize("n", [5, 6])
def test_every_sample_shares_out_everything_and_gives_the_idle_nothing(n):
    values = torch.randn(2 ** (n - 1), generator=seeded()).double().repeat(2)  # the last player does nothing
    found = estimates(values, 5)
    torch.testing.assert_close(found[:, :n, 0].sum(1), (values[-1] - values[0]).expand(5))
    idle = torch.cat((torch.arange(n) == n - 1, (pairs(n) == n - 1).any(1)))
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
    found = torch.stack(list(samples(played(values), n, n_samples=60 * 8, seed=0))).unflatten(0, (60, 8))
    covered = [(part.mean(0) - truth).abs() <= spread(part)[1] + 1e-12 for part in found]
    share = torch.stack(covered).double().mean((0, 2))
    assert (share[:n].mean() - 0.95).abs() < 0.03
    assert (share[n:].mean() - 0.95).abs() < 0.03


def test_the_error_of_a_mean_by_hand():
    error, half = spread(torch.tensor([1.0, 2.0, 3.0, 6.0]).double())
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
        found = list(samples(played(values, log), 5, n_samples=3, seed=0, interactions=interactions))
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
