r"""Shapley values and pairwise interactions of a game that is known for every coalition.

A game gives every coalition S of its players N a value v(S). A player's Shapley value is what it adds to those who are
there before it, on average over all orders in which the players can come:

    value_i = sum over S without i of  |S|! (n - |S| - 1)! / n!  ·  [v(S + i) - v(S)]

(Shapley 1953, "A value for n-person games"). It is the only one that shares out v(N) - v(none) in full, gives equals
the same and a player who adds nothing 0, and is linear in v. The Shapley interaction index of two players is

    interaction_ij = sum over S without i, j of  |S|! (n - |S| - 2)! / (n - 1)!
                     · [v(S + i + j) - v(S + i) - v(S + j) + v(S)]

(Grabisch & Roubens 1999, "An axiomatic approach to the concept of interaction among players in cooperative games"):
what i is worth where j always is there, less what it is worth where j never is. Below 0 they stand in for each other
(redundancy); above 0 they work together only (synergy); 0 where they add.

Both are linear in v: a game may have many outcomes, and values of a mean are means of values.
"""

from collections.abc import Callable
from math import factorial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range

MAX_EXACT = 12
"""Players up to which every coalition is played: 4,096 of them."""

Play = Callable[[Bool[Tensor, "coalition player"]], Float[Tensor, "coalition outcome"]]
"""A game: from coalitions, as who is there, to their values."""

_AT_ONCE = 64


def coalitions(n: int) -> Bool[Tensor, "coalition player"]:
    """All coalitions of `n` players; in row k are the players of the bits of k, the first player's bit the lowest."""
    return (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).bool()


def pairs(n: int) -> Int[Tensor, "pair 2"]:
    """Every pair of players once, in the order of the results."""
    return torch.combinations(torch.arange(n))


def shapley_values(values: Float[Tensor, "coalition *outcome"]) -> Float[Tensor, "player *outcome"]:
    """Shapley values of a table.

    Args:
        values: Of every coalition, in the order of `coalitions`.

    Raises:
        InputError: The number of coalitions is no power of two, or there are too many.
    """
    return torch.tensordot(_value_weights(_n_players(values)).to(values), values, dims=1)


def shapley_interactions(values: Float[Tensor, "coalition *outcome"]) -> Float[Tensor, "pair *outcome"]:
    """Shapley interaction indices of a table, in the order of `pairs`.

    Args:
        values: Of every coalition, in the order of `coalitions`.

    Raises:
        InputError: The number of coalitions is no power of two, or there are too many.
    """
    return torch.tensordot(_interaction_weights(_n_players(values)).to(values), values, dims=1)


def exact(play: Play, n: int, *, interactions: bool = True) -> Float[Tensor, "index outcome"]:
    """Shapley values of `n` players and, after them, the interactions of their pairs; every coalition is played."""
    who, weights = coalitions(n), _value_weights(n)
    if interactions:
        weights = torch.cat((weights, _interaction_weights(n)))
    chunks = zip(weights.split(_AT_ONCE, 1), who.split(_AT_ONCE), strict=True)
    return torch.stack([weight @ play(chunk).to(weight) for weight, chunk in chunks]).sum(0)


def _n_players(values: Tensor) -> int:
    n = len(values).bit_length() - 1
    if len(values) != 2**n:
        raise InputError(f"values must be of every coalition, 2^n for n players; got {len(values)}")
    in_range("the number of players of a table", n, 1, MAX_EXACT)
    return n


def _value_weights(n: int) -> Float[Tensor, "player coalition"]:
    there = coalitions(n)
    before = there.sum(1) - there.T.long()  # how many others are there
    weight = torch.tensor([factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)], dtype=torch.double)
    return weight[before] * torch.where(there.T, 1.0, -1.0)


def _interaction_weights(n: int) -> Float[Tensor, "pair coalition"]:
    there, (first, second) = coalitions(n), pairs(n).T
    i, j = there.T[first], there.T[second]
    before = there.sum(1) - i.long() - j.long()
    weight = [factorial(s) * factorial(n - s - 2) / factorial(n - 1) for s in range(n - 1)]
    return torch.tensor(weight, dtype=torch.double)[before] * torch.where(i == j, 1.0, -1.0)
