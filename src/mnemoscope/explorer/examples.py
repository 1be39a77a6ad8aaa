"""The sequences of a task that a page has to draw from: with minimal pairs, and with what exact predictors say."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator
from mnemoscope.explorer.packing import Packer
from mnemoscope.explorer.record import Example

MAX_EXAMPLES = 48
"""Sequences to draw from, each with its minimal pairs."""
MAX_ROWS = 1_000_000
"""Most numbers in all rows of exact predictors; beyond it there are fewer examples."""


@dataclass
class Exact:
    """Distributions of exact predictors, each kept once; they are compared in half precision."""

    rows: list[Tensor] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def numbers(self, rows: Tensor) -> list[int]:
        """The place of each row."""
        return [self._number(row) for row in rows.detach().cpu().half()]

    def _number(self, row: Tensor) -> int:
        number = self._numbers.setdefault(row.numpy().tobytes(), len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def packed(self, packer: Packer) -> int | None:
        """The number of the table, (row, token); None: it is empty."""
        return packer.pack(torch.stack(self.rows)) if self.rows else None


def examples_of(task: Task, sequences: Batch, seed: int, table: Exact | None) -> list[Example]:
    """The first sequences, each with its group and its minimal pairs, and with exact rows if there is a table."""
    n = min(MAX_EXAMPLES, len(sequences))
    if table is not None:
        per_example = int(sequences.scored.sum(1).max()) * task.d_vocab * len(task.references)
        n = max(4, min(n, MAX_ROWS // max(1, per_example * (1 + len(task.corruptions)))))
    chosen = sequences.select(slice(0, n))
    groups = task.subgroups(chosen)
    found = []
    for row in range(n):
        one = chosen.select(slice(row, row + 1))
        others = {kind: _corrupted(task, one, kind, seed) for kind in task.corruptions}
        pairs = {kind: Example(**_sequence(task, other, table)) for kind, other in others.items() if other is not None}
        group = next((name for name, rows in groups.items() if bool(rows[row])), "")
        found.append(Example(**_sequence(task, one, table), group=group, pairs=pairs))
    return found


def _corrupted(task: Task, one: Batch, kind: str, seed: int) -> Batch | None:
    """A minimal pair of one sequence; None: there is none of this kind."""
    try:
        return task.corrupt(one, kind=kind, generator=generator(seed, "explorer", kind))
    except InputError:
        return None


def _sequence(task: Task, one: Batch, table: Exact | None) -> dict[str, Any]:
    """Fields of an example: tokens, and the rows of exact predictors."""
    tokens = one.inputs[0].tolist()
    if table is None:
        return {"tokens": tokens}
    places = one.scored[0].nonzero()[:, 0]
    rows = {name: table.numbers(task.reference(one, name)[0][places]) for name in task.references}
    return {"tokens": tokens, "places": places.tolist(), "rows": rows}
