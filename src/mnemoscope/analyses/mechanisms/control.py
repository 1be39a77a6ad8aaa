"""The control of a mechanism: the same pattern, aimed at other targets.

Where the pattern of a query differs between sequences, a sequence gets that of another sequence whose pattern is
different. Where it is the same in all of them, it is moved to other keys up to the query, drawn anew for every
sequence. A row that is even over all keys has no other targets and stays.

A mechanism that is no better than this control says nothing about where the head looks. The control is conservative:
of a pattern on many keys some stay where they were.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.mechanism import TOLERANCE, Mechanism, silent
from mnemoscope.core.seeding import generator


def permuted_targets(mechanism: Mechanism, *, seed: int = 0) -> Mechanism:
    """The mechanism with its targets exchanged.

    Args:
        mechanism: Any.
        seed: Draws come from this seed's stream `permuted targets`.

    Returns:
        A mechanism that says something wherever the given one does.
    """

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        rows = mechanism.pattern(batch).clone()
        stream = generator(seed, "permuted targets", mechanism.name)
        spoken = ~silent(rows)
        for query in range(1, rows.shape[1]):
            chosen = spoken[:, query]
            if chosen.any():
                rows[chosen, query, : query + 1] = _elsewhere(rows[chosen, query, : query + 1], stream)
        return rows

    return Mechanism(name=f"{mechanism.name}, targets permuted", pattern=pattern, n_parameters=mechanism.n_parameters)


def has_control(mechanism: Mechanism, batch: Batch) -> bool:
    """Whether the pattern has other targets to be aimed at: whether any row is not even over all keys."""
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
