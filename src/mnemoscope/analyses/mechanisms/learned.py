"""Mechanisms that are read off a head: its mean attention, query by query, the same for every sequence.

They are what a mechanism without fitted numbers has to be simpler than, and say whether a head looks at the content
of the sequence at all. They show nothing about how the weights come about.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.mechanisms.weights import layer_attention
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import in_range
from mnemoscope.core.mechanism import Mechanism, checked_pattern, silent
from mnemoscope.core.patterns import fixed
from mnemoscope.core.protocols import HookedModel

LEARNED = "learned mean"


def attention_of(model: HookedModel, head: tuple[int, int], batch: Batch) -> Float[Tensor, "batch query key"]:
    """The attention of one head (layer, number), in float64.

    Raises:
        InputError: The head does not exist, the model is too small for the batch, or attention is NaN.
    """
    layer, number = head
    in_range("the number of a head", number, 0, model.cfg.n_heads - 1)
    return layer_attention(model, layer, batch)[:, number]


def learned_mean(
    attention: Float[Tensor, "batch query key"], *, unless: Float[Tensor, "batch query key"] | None = None
) -> Mechanism:
    """The mean pattern over sequences.

    Args:
        attention: Of one head, on a reference set.
        unless: A pattern: the mean is over the sequences about whose query it says nothing, and all keys alike
            for a query about which it always says something.

    Returns:
        A mechanism with one parameter less than keys for every query that it was fitted to.
    """
    counted = torch.ones_like(attention[..., 0]) if unless is None else silent(unless).to(attention)
    n_pos = attention.shape[1]
    n_sequences = counted.sum(0)[:, None]
    even = torch.ones(n_pos, n_pos).to(attention).tril()
    mean = torch.where(n_sequences > 0, torch.einsum("bqk,bq->qk", attention, counted), even)
    free = int(torch.arange(n_pos, device=mean.device)[n_sequences[:, 0] > 0].sum())
    return fixed(LEARNED, mean / mean.sum(-1, keepdim=True), n_parameters=free)


def learned_within(attention: Float[Tensor, "batch query key"], mechanism: Mechanism, batch: Batch) -> Mechanism | None:
    """The mean pattern on the keys that a mechanism attends to, renormalised: its weights fitted, its keys kept.

    Args:
        attention: Of one head, on `batch`.
        mechanism: Says which keys.
        batch: The reference set.

    Returns:
        A mechanism with one parameter less than keys for every query. None if the keys depend on the sequence, if no
        query has two of them, if they are all that there are, or if the head never attends to those of some query:
        then there is nothing to fit, or nothing new.
    """
    rows = checked_pattern(mechanism, batch)
    keys = rows > 0
    everything = torch.ones_like(keys[0]).tril()
    if (keys != keys[:1]).any() or (keys[0].sum(-1) < 2).all() or (keys[0] == everything).all():
        return None
    mean = attention.mean(0) * keys[0]
    total = mean.sum(-1, keepdim=True)
    if (total[~silent(rows[0])] == 0).any():
        return None
    return fixed(f"{mechanism.name}, {LEARNED}", mean / total)
