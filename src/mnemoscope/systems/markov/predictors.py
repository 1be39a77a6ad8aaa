"""Exact predictors of the next symbol, in closed form, from the symbols so far; float64.

With n symbols so far, k symbols in all, and counts c,

    uniform     1 / k
    n-gram      (c(context, x) + 1) / (c(context) + k)      unigram, bigram, trigram: contexts of 0, 1, 2 symbols

An n-gram predictor is the best one where the rows of a chain are drawn alike from all distributions. A *posterior* over
several priors, or over finitely many chains, weighs their predictions by the probability that each gives to the symbols
so far. Four algorithms for finitely many chains (Park et al. 2024) are n-grams (*inference*) and posteriors over the
chains that are known (*retrieval*), from unigrams or bigrams.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch pos"]
Predicted = Float[Tensor, "batch pos symbol"]
"""After every position the probabilities of the next symbol."""


def contexts(tokens: Tokens, size: int, n_symbols: int) -> Tokens:
    """The number of the last `size` symbols at every position; -1 before so many have stood."""
    found = torch.zeros_like(tokens)
    for back in range(size):
        found = found + tokens.roll(back, 1) * n_symbols**back
    return found.index_fill(1, torch.arange(max(size - 1, 0), device=tokens.device).clamp(max=tokens.shape[1] - 1), -1)


def same_context(tokens: Tokens, size: int, n_symbols: int) -> Bool[Tensor, "batch pos earlier"]:
    """True where the context at an earlier position was that of the position; of no symbols it always is."""
    here = contexts(tokens, size, n_symbols)
    earlier = torch.ones((tokens.shape[1],) * 2, dtype=torch.bool, device=tokens.device).tril(-1)
    return (here[:, :, None] == here[:, None]) & (here >= 0)[:, :, None] & earlier


def n_gram(tokens: Tokens, n: int, n_symbols: int) -> Predicted:
    """The prediction from what followed the last n - 1 symbols before; the unigram counts the first symbol, too."""
    if n == 1:
        counts = torch.nn.functional.one_hot(tokens, n_symbols).double().cumsum(1)
    else:
        followed = torch.nn.functional.one_hot(tokens[:, 1:], n_symbols).double()
        counts = same_context(tokens, n - 1, n_symbols)[:, :, :-1].double() @ followed
    return (counts + 1) / (counts.sum(-1, keepdim=True) + n_symbols)


def stay_or_move(tokens: Tokens) -> Predicted:
    """The best prediction for doubly stochastic chains of two symbols: from how often a symbol repeated itself."""
    stayed = torch.zeros_like(tokens, dtype=torch.double)
    stayed[:, 1:] = (tokens[:, 1:] == tokens[:, :-1]).double().cumsum(1)
    n_steps = torch.arange(tokens.shape[1], dtype=torch.double, device=tokens.device)
    stay = ((stayed + 1) / (n_steps + 2))[..., None]
    return torch.where(torch.nn.functional.one_hot(tokens, 2).bool(), stay, 1 - stay)


def mixed(
    tokens: Tokens, each: Sequence[Predicted], shares: Sequence[float]
) -> tuple[Predicted, Float[Tensor, "batch pos prior"]]:
    """The posterior prediction over several priors, and their posterior shares."""
    predictions = torch.stack(list(each), -2)
    given = predictions[:, :-1].gather(-1, tokens[:, 1:, None, None].expand(-1, -1, len(each), 1))[..., 0]
    evidence = torch.nn.functional.pad(given.log().cumsum(1), (0, 0, 1, 0))
    weights = (evidence + torch.tensor(shares, dtype=torch.double, device=tokens.device).log()).softmax(-1)
    return (weights[..., None] * predictions).sum(-2), weights


def retrieved(
    tokens: Tokens,
    rows: Float[Tensor, "chain state symbol"],
    shares: Float[Tensor, "chain symbol"],
    *,
    by: int,
) -> tuple[Predicted, Float[Tensor, "batch pos chain"]]:
    """The posterior prediction over chains of order 1 from unigrams (`by` 1) or bigrams (2), and posterior shares.

    `shares` are the stationary ones, from which the first symbol is drawn.
    """
    likelihood = shares.log().T[tokens]
    if by == 2:
        pairs = rows.log().permute(1, 2, 0)[tokens[:, :-1], tokens[:, 1:]]
        likelihood = torch.cat((likelihood[:, :1], pairs), 1)
    weights = likelihood.cumsum(1).softmax(-1)
    if by == 1:
        return weights @ shares, weights
    return (weights[:, :, None] @ rows.transpose(0, 1)[tokens])[:, :, 0], weights
