"""Attention mechanisms: hypotheses about what a head attends to, as functions of the batch that give a pattern.

Testing such hypotheses by putting them in the place of the learned attention is the procedure of Musat, "Mechanism and
emergence of stacked attention heads in multi-layer transformers". A pattern that holds the loss shows that the learned
attention does no more than the mechanism says, as far as this loss can tell. It does not show that the head finds its
keys in the way the mechanism was written down.

The mechanisms that come with the package spread a query's attention evenly over the keys that they name, and say
nothing where there is none. None has a fitted number, save `fixed`. Called twice, a function returns the same
mechanism, so that interventions with it are equal. A sequence may consist of slots of `period` tokens, of which the
token at place `phase` (from 0) is meant: in `x1 y1 x2 y2 ...` the period is 2, x has phase 0 and y phase 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.renamed import old_names

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
def with_fallback(first: Mechanism, second: Mechanism) -> Mechanism:
    """The first mechanism where it says something, the second elsewhere."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        one, other = first.pattern(batch), second.pattern(batch)
        return torch.where(unspecified_queries(one)[..., None], other.to(one), one)

    return Mechanism(
        name=f"{first.name}, else {second.name}",
        pattern=pattern,
        n_parameters=first.n_parameters + second.n_parameters,
        parts=(*(first.parts or (first,)), *(second.parts or (second,))),
    )


def unspecified_queries(pattern: Float[Tensor, "*rows query key"]) -> Bool[Tensor, "*rows query"]:
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


Keys = Callable[[Batch, Int[Tensor, "query 1"], Int[Tensor, "1 key"]], Bool[Tensor, "..."]]
Occurrences = Literal["all", "first", "last"]


def attends_to(name: str, keys: Keys) -> Mechanism:
    """Attention spread evenly over the keys that a condition names.

    `keys` gives, from the batch, the positions of queries and those of keys, whether a query attends to a key; it
    broadcasts to (batch, query, key). Keys after the query are left out by themselves.
    """

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        pos = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
        query, key = pos[:, None], pos[None]
        named = keys(batch, query, key) & (key <= query)
        weights = named.float() / named.sum(-1, keepdim=True)  # 0 / 0 = NaN: nothing is said
        return weights.expand(len(batch), -1, -1)

    return Mechanism(name=name, pattern=pattern)


@cache
def uniform() -> Mechanism:
    """All keys up to the query."""
    return attends_to("uniform", lambda batch, query, key: key <= query)


@cache
def identity() -> Mechanism:
    """The query itself."""
    return attends_to("identity", lambda batch, query, key: key == query)


@cache
def first() -> Mechanism:
    """The first token."""
    return replace(fixed_key(0), name="first token")


@cache
def previous(offset: int = 1) -> Mechanism:
    """The token `offset` positions before the query."""
    in_range("offset", offset, 1, float("inf"))
    name = "previous token" if offset == 1 else f"{offset} tokens before"
    return attends_to(name, lambda batch, query, key: key == query - offset)


@cache
def earlier(*, period: int, phase: int, name: str = "") -> Mechanism:
    """All keys before the query that stand at one place of their slots."""
    _check_slots(period, phase)
    name = name or f"earlier at place {phase + 1} of {period}"
    return attends_to(name, lambda batch, query, key: (key % period == phase) & (key < query))


@cache
def same_slot(*, period: int = 2) -> Mechanism:
    """The keys before the query in its own slot: from the second of a pair the first."""
    _check_slots(period, 0)
    return attends_to("same slot", lambda batch, query, key: (key // period == query // period) & (key < query))


@cache
def fixed_key(position: int) -> Mechanism:
    """One and the same position, for every query from there on."""
    in_range("position", position, 0, float("inf"))
    return attends_to(f"position {position}", lambda batch, query, key: key == position)


@cache
def same_value(latent: str) -> Mechanism:
    """Earlier positions at which a latent `batch pos` is what it is at the query: "same position", say."""

    def keys(batch: Batch, query: Tensor, key: Tensor) -> Tensor:
        values = _latent(batch, latent)
        if values.shape[:2] != batch.inputs.shape[:2]:
            raise InputError(f"latent {latent} must hold a value for every position; got shape {tuple(values.shape)}")
        return _equal(values) & (key < query)

    return attends_to(f"same {latent}", keys)


@cache
def earlier_same(occurrences: Occurrences = "all", *, period: int = 1) -> Mechanism:
    """Earlier occurrences of the query's token: the pattern of a duplicate-token head.

    With a `period` only those count that are at the query's place of a slot of that length: with 2, the first of a pair
    does not occur again as the second of one.
    """
    one_of("occurrences", occurrences, ("all", "first", "last"))
    return attends_to(
        _named("same token", occurrences, period),
        lambda batch, query, key: _occurs(batch, query, key, occurrences, period),
    )


@cache
def after_earlier_same(occurrences: Occurrences = "all", *, period: int = 1) -> Mechanism:
    """Tokens that follow earlier occurrences of the query's token: the pattern of an induction head.

    The `period` is as for `earlier_same`.
    """
    one_of("occurrences", occurrences, ("all", "first", "last"))
    return attends_to(
        _named("after same token", occurrences, period),
        lambda batch, query, key: _occurs(batch, query, key, occurrences, period).roll(1, -1),
    )


@cache
def one_hot(latent: str, *, query: int | None = None, shift: int = 0) -> Mechanism:
    """The position that a latent holds; negative: none.

    The latent has one position a sequence, or one for every query of it. `query` is the only query that it is about,
    negative from the end; none: every query from that position on. `shift` is added to the position: 1 for the token
    after it.
    """

    def keys(batch: Batch, queries: Tensor, key: Tensor) -> Tensor:
        values, n_pos = _latent(batch, latent), batch.inputs.shape[1]
        if values.dtype.is_floating_point or values.dtype == torch.bool or values.shape[:1] != (len(batch),):
            raise InputError(f"latent {latent} must hold positions as whole numbers; got {values.dtype}")
        if values.ndim == 1:
            values = values[:, None].expand(-1, n_pos)
        if values.shape != (len(batch), n_pos) or (values >= n_pos).any():
            raise InputError(f"latent {latent} must hold positions below {n_pos}, one a sequence or one a query")
        if query is not None:
            in_range("query", query, -n_pos, n_pos - 1)
        about = (queries == (queries if query is None else query % n_pos)) & (values >= 0)[..., None]
        return about & (key == values[..., None] + shift)

    name = latent + (f" {shift:+d}" if shift else "") + ("" if query is None else f" from query {query}")
    return attends_to(name, keys)


def fixed(name: str, weights: Float[Tensor, "query key"], *, n_parameters: int | None = None) -> Mechanism:
    """The same weights for every sequence, query by query.

    `weights` has one row a query, NaN in rows about which it says nothing. `n_parameters` of the numbers were fitted;
    none: all that are free, which is one less than the weights above zero of every row.
    """
    if n_parameters is None:
        n_parameters = int(((weights > 0).sum(-1) - 1).clamp(min=0).sum())

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        return weights.to(batch.inputs.device).expand(len(batch), -1, -1)

    return Mechanism(name=name, pattern=pattern, n_parameters=n_parameters)


def common_mechanisms() -> tuple[Mechanism, ...]:
    """The mechanisms that need no knowledge of the task, from the simplest on."""
    return (uniform(), identity(), first(), previous(), earlier_same(), after_earlier_same())


def slot_mechanisms(period: int) -> tuple[Mechanism, ...]:
    """`common` and those of sequences that consist of slots; with slots of one token there are no others."""
    if period == 1:
        return common_mechanisms()
    places = (earlier(period=period, phase=phase) for phase in reversed(range(period)))
    copies = (earlier_same(period=period), after_earlier_same(period=period))
    return (*common_mechanisms(), same_slot(period=period), *places, *copies)


def _check_slots(period: int, phase: int) -> None:
    in_range("period", period, 1, float("inf"))
    in_range("phase", phase, 0, period - 1)


def _latent(batch: Batch, name: str) -> Tensor:
    one_of("latent", name, batch.latents)
    return batch.latents[name].to(batch.inputs.device)


def _equal(values: Tensor) -> Bool[Tensor, "batch query key"]:
    """True if query and key hold the same value; vectors are the same in all their entries."""
    rows = values[:, :, None] == values[:, None]
    return rows if rows.ndim == 3 else rearrange(rows, "batch query key ... -> batch query key (...)").all(-1)


def _occurs(
    batch: Batch, query: Tensor, key: Tensor, occurrences: Occurrences, period: int
) -> Bool[Tensor, "batch query key"]:
    """True if the key is one of the wanted earlier occurrences of the query's token."""
    _check_slots(period, 0)
    occurs = _equal(batch.inputs) & (key < query) & (key % period == query % period)
    if occurrences == "all":
        return occurs
    seen = occurs if occurrences == "first" else occurs.flip(-1)
    only = seen & (seen.cumsum(-1) == 1)
    return only if occurrences == "first" else only.flip(-1)


def _named(name: str, occurrences: Occurrences, period: int) -> str:
    name = name if occurrences == "all" else f"{occurrences} {name}"
    return name if period == 1 else f"{name} at same place"


__getattr__ = old_names(__name__)
