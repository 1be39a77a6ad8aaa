"""The exact reader of the last slot that is blind to order: it sees which tokens stood there and not where.

It knows the earlier tokens as a bag and the last x, and gives the posterior of the last answer under all permutations
with the repeats of the task::

    p(y | bag, last x) = weight of sequences with this bag, this last x and answer y / weight of those with these two

With five values and 30 % repeats it is always right where x is new: the two tokens that stand in the bag only once are
the missing x and the unused y. It cannot tell which y belonged to a repeated x. Over all mappings it loses .575 nats in
the last slot, and no reader that is blind to order can lose less.

It shows the cost of blindness alone. A model that loses as much need not be blind.
"""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch
from mnemoscope.analyses import every_sequence
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def blind_reader(task: PermutationLookup, batch: Batch) -> Float[Tensor, "batch d_vocab"]:
    """Probabilities of the last answer, in float64; sequences may have repeats only if the task has."""
    codes, table = _posteriors(task)
    return table[torch.searchsorted(codes, _codes(task, batch))]


@lru_cache(maxsize=4)
def _posteriors(task: PermutationLookup) -> tuple[Int[Tensor, " bag"], Float[Tensor, "bag d_vocab"]]:
    """Every bag with a last x, as a number, and the distribution of the answer."""
    batch = every_sequence(task, "all")
    assert batch.weights is not None
    codes, row = _codes(task, batch).unique(return_inverse=True)
    table = torch.zeros(len(codes), task.d_vocab, dtype=torch.double)
    table.index_put_((row, batch.targets[:, -1]), batch.weights.double(), accumulate=True)
    return codes, table / table.sum(1, keepdim=True)


def _codes(task: PermutationLookup, batch: Batch) -> Int[Tensor, " batch"]:
    """One number for the counts of the earlier tokens (at most two each) and the last x."""
    counts = torch.nn.functional.one_hot(batch.inputs[:, :-1], task.d_vocab).sum(1)
    digits = torch.cat((counts, batch.inputs[:, -1:]), 1)
    return (digits * task.d_vocab ** torch.arange(digits.shape[1])).sum(1)
