"""Markov chains as values, many at once: priors, stationary shares, and walks.

A chain of order n has a *state*, the last n symbols, the first of them the most significant digit; its rows say what
comes next. All random numbers of a walk are drawn beforehand, so that a step is one comparison for all sequences.
"""

from functools import lru_cache
from itertools import permutations

import torch
from jaxtyping import Float, Int
from torch import Tensor

Rows = Float[Tensor, "chain state symbol"]
"""Probabilities of the next symbol after every state, float64."""
MAX_PERMUTED = 5
"""Symbols up to which doubly stochastic matrices are mixtures of all permutations."""


def dirichlet(shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "*rows symbol"]:
    """Distributions over the last axis, uniform over all of them."""
    draws = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.double)
    sizes = (-torch.log1p(-draws)).clamp(min=torch.finfo(torch.double).tiny)
    return sizes / sizes.sum(-1, keepdim=True)


@lru_cache
def _permutations(n_symbols: int, device: str) -> Float[Tensor, "permutation row symbol"]:
    every = torch.tensor(list(permutations(range(n_symbols))), device=device)
    return torch.nn.functional.one_hot(every, n_symbols).double()


def doubly_stochastic(n: int, n_symbols: int, generator: torch.Generator) -> Rows:
    """Chains whose columns add up to one, too, so that every symbol is as frequent as any other.

    They are mixtures of all permutations (Birkhoff 1946) whose shares are uniform over all distributions. Of two
    symbols that is a matrix whose probability of staying is uniform.
    """
    every = _permutations(n_symbols, str(generator.device))
    shares = dirichlet((n, len(every)), generator)
    return torch.einsum("cp,prs->crs", shares, every)


def state_chain(rows: Rows) -> Float[Tensor, "chain state state"]:
    """The chain of states, in which each follows another: of order 1 the rows themselves."""
    n, n_states, n_symbols = rows.shape
    after = (torch.arange(n_states, device=rows.device)[:, None] * n_symbols) % n_states
    after = after + torch.arange(n_symbols, device=rows.device)
    return rows.new_zeros(n, n_states, n_states).scatter(2, after.expand(n, -1, -1), rows)


def stationary(chain: Float[Tensor, "chain state state"]) -> Float[Tensor, "chain state"]:
    """The share of every state in the long run, by elimination without subtractions (Grassmann, Taksar & Heyman 1985).

    Every state must be reachable from every other.
    """
    left = chain.clone()
    n_states = left.shape[1]
    for last in range(n_states - 1, 0, -1):
        left[:, :last, last] /= left[:, last, :last].sum(-1, keepdim=True)
        left[:, :last, :last] += left[:, :last, last, None] * left[:, last, None, :last]
    shares = torch.zeros_like(left[:, 0])
    shares[:, 0] = 1
    for state in range(1, n_states):
        shares[:, state] = (shares[:, :state] * left[:, :state, state]).sum(-1)
    return shares / shares.sum(-1, keepdim=True)


def draw(shares: Float[Tensor, "*rows option"], level: Float[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
    """The option at a level between 0 and 1 of the cumulative shares."""
    return (level[..., None] >= shares.cumsum(-1)[..., :-1]).sum(-1)


def walk(rows: Rows, order: int, length: int, generator: torch.Generator) -> Int[Tensor, "chain pos"]:
    """One sequence of every chain. The first state is drawn from the stationary shares."""
    n, n_states, n_symbols = rows.shape
    device = rows.device
    level = torch.rand((length, n), generator=generator, device=device, dtype=torch.double)
    state = draw(stationary(state_chain(rows)), level[0])
    symbols = torch.empty((length, n), dtype=torch.long, device=device)
    for place in range(order):
        symbols[place] = state // n_symbols ** (order - 1 - place) % n_symbols
    # One column of thresholds at a time: a comparison of whole columns is quicker than a short sum in every row.
    thresholds = rows.cumsum(-1)[..., :-1].permute(2, 0, 1).flatten(1).contiguous()
    first = torch.arange(n, device=device) * n_states
    for step in range(order, length):
        here = first + state
        following = torch.zeros(n, dtype=torch.long, device=device)
        for column in thresholds:
            following += level[step] >= column.index_select(0, here)
        symbols[step] = following
        state = (state * n_symbols + following) % n_states if order > 1 else following
    return symbols.T.contiguous()
