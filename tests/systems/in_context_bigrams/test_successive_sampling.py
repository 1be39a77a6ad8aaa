import math
from itertools import combinations, permutations

import pytest
import torch

from mnemoscope.systems.in_context_bigrams.markov import shakespeare
from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws, inclusion
from tests.support import seeded

WEIGHTS = torch.tensor([0.4, 0.3, 0.2, 0.09, 0.01], dtype=torch.double)


def probability(chosen: tuple[int, ...]) -> float:
    """That these are drawn, in whatever order: one draw after another."""
    total = 0.0
    for order in permutations(chosen):
        share, left = 1.0, 1.0
        for token in order:
            share, left = share * WEIGHTS[token].item() / left, left - WEIGHTS[token].item()
        total += share
    return total


def by_listing(k: int, token: int, inside: list[float], outside: list[float]) -> float:
    """The posterior over all sets of k."""
    with_it = total = 0.0
    for chosen in combinations(range(5), k):
        factors = [inside[i] if i in chosen else outside[i] for i in range(5)]
        share = probability(chosen) * math.prod(factors)
        total += share
        with_it += share * (token in chosen)
    return with_it / total if total else math.nan


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_prior_inclusion_is_that_of_all_orders_of_drawing(k):
    expected = [by_listing(k, token, [1] * 5, [1] * 5) for token in range(5)]
    assert Draws(WEIGHTS, k).inclusion.tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_posterior_is_that_of_listing_all_sets(k):
    generator = seeded(k)
    inside, outside = torch.rand(2, 1, 40, 5, generator=generator, dtype=torch.double) ** 8
    inside[0, :20, 1] = 0  # cannot have been drawn
    outside[0, 10:30, 3] = 0  # must have been
    outside[0, 25:28, :2] = 0  # too many are certain, unless k allows for them
    inside[0, 36:, 1:] = 0  # too few are left
    token = torch.randint(5, (1, 40), generator=generator)
    given = inclusion(Draws(WEIGHTS, k), token, torch.zeros(1, 5, dtype=torch.long), inside, outside)[0]
    cases = zip(token[0].tolist(), inside[0].tolist(), outside[0].tolist(), strict=True)
    expected = [by_listing(k, *case) for case in cases]
    assert given.tolist() == pytest.approx(expected, rel=1e-9, nan_ok=True)
    assert given.isnan().any()


def test_tokens_that_are_met_one_after_another_are_told_apart_from_those_to_come():
    met_at = torch.tensor([[3, 0, 2, 1, 9], [0, 9, 9, 1, 9]])
    token = torch.tensor([[1, 3, 2, 0], [0, 3, 3, 0]])
    factors = torch.rand(2, 2, 4, 5, generator=seeded(), dtype=torch.double)
    inside, outside = torch.where(met_at[:, None] <= torch.arange(4)[:, None], factors, 1.0)
    at_once = inclusion(Draws(WEIGHTS, 2), token, torch.zeros(2, 5, dtype=torch.long), inside, outside)
    torch.testing.assert_close(inclusion(Draws(WEIGHTS, 2), token, met_at, inside, outside), at_once)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_as_many_are_drawn_as_are_drawn(k):
    share = Draws(shakespeare().unigram, k).inclusion
    assert share.sum().item() == pytest.approx(k, rel=1e-9)
    assert (share[shakespeare().unigram.argsort()].diff() > -1e-9).all()  # the more frequent, the surer


def test_a_token_of_no_weight_is_never_drawn():
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.double)
    assert Draws(weights, 1).inclusion.tolist() == pytest.approx([0.5, 0.5, 0])
    assert Draws(weights, 2).inclusion.tolist() == pytest.approx([1, 1, 0])
