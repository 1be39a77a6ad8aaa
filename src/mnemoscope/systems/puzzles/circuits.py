"""Known circuits of the puzzles: hand-set models, with the edges that carry the answer on pairs of one kind.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mnemoscope as ms
from mnemoscope.systems.puzzles.constructed.digit_sum import adder
from mnemoscope.systems.puzzles.constructed.first_unique import counter
from mnemoscope.systems.puzzles.constructed.palindrome import mirror_reader
from mnemoscope.systems.puzzles.constructed.running_sum import averaging
from mnemoscope.systems.puzzles.constructed.sorted_list import graded_model, single_model
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A hand-set model of a task, the kind of pairs, and the edges that carry the answer on them."""

    task: ms.Task
    make: Callable[[], ms.HookedModel]
    kind: str
    family: str
    source: str
    edges: tuple[str, ...]


_READS = ("input → L0H{0} q", "input → L0H{0} k", "input → L0H{0} v", "L0H{0} → logits")
_ADDER = (
    *("input → L0H0 v", "input → L0H1 k", "input → L0H1 v"),
    *(f"L0H{writer} → L1H{reader} q" for writer in (0, 1) for reader in (0, 1)),
    *("L1H0 → logits", "L1H1 → logits"),
)
_SUMS = "L0H0 adds the two digits, L0H1 finds the carry; both heads of layer 1 turn the sum into its digit."

PLANTED = {
    "sorted-list-one-head": Planted(
        task=SortedList(),
        make=single_model,
        kind="replace_later",
        family="sorted-list",
        source="L0H0 looks for the next larger value and copies it; L0H1 looks for it too, and writes nothing.",
        edges=tuple(name.format(0) for name in _READS),
    ),
    "sorted-list-two-heads": Planted(
        task=SortedList(),
        make=graded_model,
        kind="replace_later",
        family="sorted-list",
        source="Both heads look for the next larger value, and each gives half of its logit.",
        edges=tuple(name.format(head) for head in (0, 1) for name in _READS),
    ),
    "first-unique": Planted(
        task=FirstUnique(),
        make=partial(counter, FirstUnique()),
        kind="repeat_answer",
        family="first-unique",
        source="L0H0 counts the letters so far; L1H0 looks for the first that it counted once, and copies it.",
        edges=("input → L0H0 v", "L0H0 → L1H0 q", "input → L1H0 k", "input → L1H0 v", "L1H0 → logits"),
    ),
    "palindrome": Planted(
        task=Palindrome(),
        make=mirror_reader,
        kind="change_answer",
        family="palindrome",
        source="L0H0 compares letters with their mirror images; L1H0 looks for one that differs, and says so.",
        edges=("input → L0H0 q", "input → L0H0 k", "L0H0 → L1H0 k", "L0H0 → L1H0 v", "L1H0 → logits"),
    ),
    "sum-carry": Planted(
        task=DigitSum(),
        make=partial(adder, DigitSum()),
        kind="flip_carry",
        family="sum",
        source=_SUMS,
        edges=_ADDER,
    ),
    "sum-digit": Planted(
        task=DigitSum(),
        make=partial(adder, DigitSum()),
        kind="change_digit",
        family="sum",
        source=_SUMS,
        edges=_ADDER,
    ),
    "running-sum": Planted(
        task=RunningSum(),
        make=partial(averaging, RunningSum()),
        kind="reorder",
        family="running-sum",
        source="L0H0 averages the numbers so far; the MLP tells a mean above zero from one below.",
        edges=("input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits"),
    ),
}


def draw_pairs(n: int, seed: int, *, task: ms.Task, kind: str) -> ms.PromptPairs:
    """Pairs of a task."""
    batch = task.sample(4 * n, split="test", generator=ms.generator(seed, "known circuit"))
    return ms.PromptPairs.from_task(task, batch, kind=kind, seed=seed).select(slice(n))


def known_circuit(name: str) -> ms.methods.KnownCircuit:
    """A planted circuit by name."""
    planted = PLANTED[name]
    return ms.methods.KnownCircuit(
        name=name,
        family=planted.family,
        source=planted.source,
        model=planted.make(),
        pairs=partial(draw_pairs, task=planted.task, kind=planted.kind),
        edges=frozenset(planted.edges),
    )


for _name in PLANTED:
    ms.methods.KNOWN_CIRCUITS.add(_name, partial(known_circuit, _name))
