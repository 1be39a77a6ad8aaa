"""Adversarial search: sequences that a model answers wrongly, found by changes of single tokens.

From the given sequences every change of one token at the allowed positions is tried, and every result is answered
anew by the task. Those with the least probability of their right answer are kept and changed again. With all kept the
search is exhaustive; otherwise it is a guided one (beam search).

*Shows* that a wrong answer exists. *Does not show*, if a guided search finds none, that there is none.
"""

import math
from collections.abc import Callable, Sequence

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel
from mnemoscope.core import CHUNK, in_range, metrics

Answered = Callable[[Int[Tensor, "batch pos"]], Batch]
"""The batch of some tokens, with their right answers."""


def adversarial_search(
    model: HookedModel,
    batch: Batch,
    answered: Answered,
    *,
    tokens: Sequence[int],
    positions: Sequence[int],
    n_changes: int = 1,
    n_kept: int | None = 64,
) -> xr.Dataset:
    """Sequences by the probability of their right answer, the least likely first.

    Args:
        model: The model that answers.
        batch: Sequences to start from.
        answered: The batch of changed tokens, such as `task.batch` or `task.from_tokens`.
        tokens: Those that may stand at the positions.
        positions: Where tokens are changed.
        n_changes: Rounds, of one change each.
        n_kept: Sequences that a round goes on from; None: all.

    Returns:
        `sequence` over (rank, pos); over rank `log_prob`, in nats, of the right answer (of several in a sequence the
        least likely), and `change`, the round that found it, 0 for the given ones. Each sequence comes once; `n_kept`
        of them, or all.
    """
    in_range("n_changes", n_changes, 0, math.inf)
    found, least = batch.inputs, log_probs_of_answers(model, batch)
    change, kept = torch.zeros(len(found), dtype=torch.long), found
    for number in range(1, n_changes + 1):
        new = _neighbours(kept, tokens, positions)
        both = torch.cat((found, new))
        unique, where = both.unique(dim=0, return_inverse=True)
        first = torch.full((len(unique),), len(both)).scatter_reduce(0, where, torch.arange(len(both)), "amin")
        fresh = both[first[first >= len(found)]]
        found = torch.cat((found, fresh))
        least = torch.cat((least, log_probs_of_answers(model, answered(fresh))))
        change = torch.cat((change, torch.full((len(fresh),), number)))
        kept = found[least.argsort()[:n_kept]]
    order = least.argsort(stable=True)[:n_kept]
    return xr.Dataset(
        {
            "sequence": (("rank", "pos"), found[order].numpy()),
            "log_prob": ("rank", least[order].numpy()),
            "change": ("rank", change[order].numpy()),
        },
        attrs={"unit": "nats", "n_tried": len(found)},
    )


@torch.no_grad()
def log_probs_of_answers(model: HookedModel, batch: Batch) -> Float[Tensor, " batch"]:
    """The log-probability of the right answer of every sequence; of several the least likely."""
    rows = []
    for chunk in torch.arange(len(batch)).split(CHUNK):
        part = batch.select(chunk)
        right = metrics.at_target(model(part.inputs).double().log_softmax(-1), part.targets)
        rows.append(right.masked_fill(~part.scored, math.inf).amin(1))
    return torch.cat(rows)


def _neighbours(
    sequences: Int[Tensor, "batch pos"], tokens: Sequence[int], positions: Sequence[int]
) -> Int[Tensor, "more pos"]:
    """All sequences with one token changed, or the same one written again."""
    cells = torch.cartesian_prod(torch.arange(len(sequences)), torch.tensor(positions), torch.tensor(tokens))
    changed = sequences[cells[:, 0]]
    changed[torch.arange(len(cells)), cells[:, 1]] = cells[:, 2]
    return changed
