"""Mechanisms that are derived: fitted to a head, or aimed at other targets as a control.

*Fitted*: the mean attention of a head, query by query, the same for every sequence. These are what a mechanism without
fitted numbers has to be simpler than, and say whether a head looks at the content of the sequence at all. They show
nothing about how the weights come about.

*Aimed at other targets*, with the same pattern: where the pattern of a query differs between sequences, a sequence gets
that of another sequence whose pattern is different. Where it is the same in all of them, it is moved to other keys up
to the query, drawn anew for every sequence. A row that is even over all keys has no other targets and stays.

A mechanism that is no better than this control says nothing about where the head looks. The control is conservative:
of a pattern on many keys some stay where they were.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import in_range
from mnemoscope.core.patterns import TOLERANCE, Mechanism, checked_pattern, fixed, silent
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator

LEARNED = "learned mean"


def attention_of(model: HookedModel, head: tuple[int, int], batch: Batch) -> Float[Tensor, "batch query key"]:
    """The attention of one head (layer, number), in float64."""
    layer, number = head
    in_range("the number of a head", number, 0, model.cfg.n_heads - 1)
    return layer_attention(model, layer, batch)[:, number]


def learned_mean(
    attention: Float[Tensor, "batch query key"], *, unless: Float[Tensor, "batch query key"] | None = None
) -> Mechanism:
    """The mean pattern over sequences, with one parameter less than keys for every query that it was fitted to.

    With `unless`, a pattern, the mean is over the sequences about whose query this says nothing. It is over all keys
    alike for a query about which it always says something.
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

    It has one parameter less than keys for every query. The result is None where there is nothing to fit, or nothing
    new. The keys then depend on the sequence or are all that there are, no query has two, or the head never attends to
    those of some query.
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


def permuted_targets(mechanism: Mechanism, *, seed: int = 0) -> Mechanism:
    """The mechanism with its targets exchanged, by the seed's stream `permuted targets`."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        rows = mechanism.pattern(batch).clone()
        stream = generator(seed, "permuted targets", mechanism.name)
        covered = ~silent(rows)
        for query in range(1, rows.shape[1]):
            chosen = covered[:, query]
            if chosen.any():
                rows[chosen, query, : query + 1] = _elsewhere(rows[chosen, query, : query + 1], stream)
        return rows

    return Mechanism(name=f"{mechanism.name}, targets permuted", pattern=pattern, n_parameters=mechanism.n_parameters)


def has_control(mechanism: Mechanism, batch: Batch) -> bool:
    """True if the pattern has other targets to be aimed at: if any row is not even over all keys."""
    rows = mechanism.pattern(batch)
    n_pos = rows.shape[1]
    even = torch.ones(n_pos, n_pos, device=rows.device).tril() / torch.arange(1, n_pos + 1, device=rows.device)[:, None]
    return bool((((rows - even).abs().sum(-1) > TOLERANCE) & ~silent(rows)).any())


def _elsewhere(rows: Float[Tensor, "row key"], stream: torch.Generator) -> Float[Tensor, "row key"]:
    """Rows of other sequences that are different, or, where all are the same, with the keys permuted."""
    kinds, kind, sizes = rows.unique(dim=0, return_inverse=True, return_counts=True)
    if len(kinds) > 1:
        return rows[_of_another_kind(kind, sizes, stream)]
    draws = torch.rand(rows.shape, generator=stream).to(rows.device)
    if int((rows[0] > 0).sum()) == 1:  # one target: never the same one again
        draws = draws.masked_fill(rows > 0, -1.0)
        return torch.zeros_like(rows).scatter(1, draws.argmax(1, keepdim=True), 1.0)
    return rows.gather(1, draws.argsort(1))


def _of_another_kind(
    kind: Int[Tensor, " row"], sizes: Int[Tensor, " kind"], stream: torch.Generator
) -> Int[Tensor, " row"]:
    """For every row another one, drawn evenly from those of other kinds."""
    ordered = kind.argsort(stable=True)
    behind = sizes.cumsum(0)[kind]  # where, in that order, the row's own kind ends
    others = len(kind) - sizes[kind]
    step = (torch.rand(len(kind), generator=stream, dtype=torch.double).to(kind.device) * others).long()
    return ordered[(behind + step) % len(kind)]
