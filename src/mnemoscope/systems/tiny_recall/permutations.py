"""Permutations, their split, and exact predictions about one that is shown pair by pair.

A context is a number of pairs (x, y) with y the image of x; the question at slot k is the image of x_k, given the
pairs of the slots before it. Predictions are float64 over the values 0..V, of which 0 never occurs.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import generator


@lru_cache(maxsize=16)
def all_permutations(n_values: int) -> Int[Tensor, "permutation value"]:
    """All permutations of 1..n_values in lexicographic order; column i holds the image of i + 1."""
    return torch.tensor(list(permutations(range(1, n_values + 1))))


@lru_cache(maxsize=256)
def split_permutations(n_values: int, train_fraction: float, seed: int) -> Mapping[str, Int[Tensor, "mapping value"]]:
    """A random split into `train` and `test`, drawn from the stream `split` of `seed`."""
    table = all_permutations(n_values)
    order = torch.randperm(len(table), generator=generator(seed, "split"))
    n_train = round(train_fraction * len(table))
    return {"train": table[order[:n_train].sort()[0]], "test": table[order[n_train:].sort()[0]]}


def exchange(
    mapping: Int[Tensor, "batch value"], a: Int[Tensor, " batch"], b: Int[Tensor, " batch"]
) -> Int[Tensor, "batch value"]:
    """The mappings with the images of the values `a` and `b` exchanged, row by row."""
    index = torch.stack((a, b), 1) - 1
    return mapping.scatter(1, index, mapping.gather(1, index.flip(1)))


def read_from_context(
    x: Int[Tensor, "batch slot"], y: Int[Tensor, "batch slot"], n_values: int, *, eliminate: bool, recall: bool
) -> Float[Tensor, "batch slot d_vocab"]:
    """The prediction that follows from the context alone, for queries x with images y of V = `n_values` values.

    With `eliminate` it spreads evenly over the values that no earlier pair has as its y; else over all values. With
    `recall`, if x stood there before, all mass is on the y it had.
    """
    values = torch.arange(n_values + 1, device=x.device)
    earlier = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril(-1)
    is_value = y[:, None, :, None] == values
    used = (is_value & earlier[:, :, None]).any(2)
    free = ((values > 0) & ~(used & eliminate)).double()
    free = free / free.sum(-1, keepdim=True)
    if not recall:
        return free
    same = (x[:, :, None] == x[:, None, :]) & earlier
    recalled = (is_value & same[..., None]).any(2).double()
    return torch.where(same.any(2)[..., None], recalled, free)


def posterior(
    x: Int[Tensor, "batch slot"], y: Int[Tensor, "batch slot"], prior: Int[Tensor, "mapping value"]
) -> Float[Tensor, "batch slot d_vocab"]:
    """The posterior under a uniform prior over `prior`, by counting consistent mappings; NaN where there is none."""
    images = torch.nn.functional.one_hot(prior, prior.shape[1] + 1).double()  # mapping value d_vocab
    chunks = []
    for rows in torch.arange(len(x), device=x.device).split(max(1, 2**24 // len(prior))):
        consistent = torch.ones(len(rows), len(prior), dtype=torch.bool, device=x.device)
        slots = []
        for slot in range(x.shape[1]):
            counts = torch.einsum("bm,mvd->bvd", consistent.double(), images)
            slots.append(counts[torch.arange(len(rows)), x[rows, slot] - 1])
            consistent = consistent & (y[rows, slot, None] == prior[:, x[rows, slot] - 1].T)
        chunks.append(torch.stack(slots, 1))
    counts = torch.cat(chunks)
    return counts / counts.sum(-1, keepdim=True)
