"""A hypothesis about what an attention head attends to: a function of the batch that gives a pattern.

Testing such hypotheses by putting them in the place of the learned attention is the procedure of Musat, "Mechanism
and emergence of stacked attention heads in multi-layer transformers".

A pattern that holds the loss shows that the learned attention does no more than the mechanism says, as far as this
loss can tell. It does not show that the head finds its keys in the way the mechanism was written down.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range

TOLERANCE = 1e-4
"""The error allowed in the sum of a row: the rounding of a float32 softmax over a few thousand keys."""

Pattern = Callable[[Batch], Float[Tensor, "batch query key"]]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """An attention pattern that is known from the batch.

    Equal where name, function and the rest are the same.

    Attributes:
        pattern: The weight of every key for every query. Rows add up to one, keys after the query have none; in a
            row of NaN the mechanism says nothing, and the learned row stays.
        n_parameters: How many numbers of it were fitted to the model: the measure of its simplicity.
        parts: Mechanisms that it is made of, of which the first that says something about a row gives it; none: it
            is a whole.
    """

    name: str
    pattern: Pattern = field(repr=False)
    n_parameters: int = 0
    parts: tuple["Mechanism", ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("the name of a mechanism must not be empty; say what it attends to")
        in_range(f"n_parameters of mechanism {self.name}", self.n_parameters, 0, float("inf"))


@cache
def otherwise(first: Mechanism, second: Mechanism) -> Mechanism:
    """The first mechanism where it says something, the second elsewhere."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        one, other = first.pattern(batch), second.pattern(batch)
        return torch.where(silent(one)[..., None], other.to(one), one)

    return Mechanism(
        name=f"{first.name}, else {second.name}",
        pattern=pattern,
        n_parameters=first.n_parameters + second.n_parameters,
        parts=(*(first.parts or (first,)), *(second.parts or (second,))),
    )


def silent(pattern: Float[Tensor, "*rows query key"]) -> Bool[Tensor, "*rows query"]:
    """Queries about which a pattern says nothing."""
    return pattern.isnan().any(-1)


def checked_pattern(mechanism: Mechanism, batch: Batch) -> Float[Tensor, "batch query key"]:
    """The pattern of a mechanism, refused where it could not be attention over (batch, query, key).

    Raises InputError where a row is NaN in part or does not add up to one, a weight is negative, or a key after its
    query has a weight.
    """
    pattern = mechanism.pattern(batch)
    n_pos = batch.inputs.shape[1]
    who = f"the pattern of mechanism {mechanism.name}"
    shape = (len(batch), n_pos, n_pos)
    if pattern.shape != shape:
        raise InputError(f"{who} must have shape (batch, query, key) = {shape}; got {tuple(pattern.shape)}")
    rows = pattern if pattern.stride(0) else pattern[:1]  # one row may stand for all
    missing = rows.isnan()
    if not torch.equal(missing.any(-1), missing.all(-1)):
        raise InputError(f"{who} must be NaN in a whole row, so that the learned row stays, or nowhere in it")
    if (rows < 0).any():
        raise InputError(f"{who} must not be negative; got {float(rows[~missing].min()):g}")
    if (rows.triu(1) > 0).any():
        raise InputError(f"{who} must be causal: keys after the query have weight 0; a query without a key has NaN")
    off = (rows.sum(-1) - 1).abs()  # NaN is never too far off
    if (off > TOLERANCE).any():
        most = float(off[off > TOLERANCE].max())
        raise InputError(f"{who} must have rows that add up to 1; got one that misses it by {most:g}")
    return pattern


def check_names(mechanisms: Sequence[Mechanism]) -> None:
    """Refuse an empty list and names that occur twice."""
    names = [mechanism.name for mechanism in mechanisms]
    if not names:
        raise InputError("mechanisms must name at least one; patterns.common() has those that fit every task")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"mechanisms must have names of their own; got {twice[0]!r} twice")
