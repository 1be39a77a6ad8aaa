"""Known circuits of the puzzles: hand-set models, with the edges that carry the answer on pairs of one kind.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit.
"""

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


def draw_pairs(n: int, seed: int, *, task: ms.Task, kind: str) -> ms.PromptPairs:
    """Pairs of a task."""
    batch = task.sample(4 * n, split="test", generator=ms.generator(seed, "known circuit"))
    return ms.PromptPairs.from_task(task, batch, kind=kind, seed=seed).select(slice(n))


_READS = ("input → L0H{0} q", "input → L0H{0} k", "input → L0H{0} v", "L0H{0} → logits")
_ADDER = (
    *("input → L0H0 v", "input → L0H1 k", "input → L0H1 v"),
    *(f"L0H{writer} → L1H{reader} q" for writer in (0, 1) for reader in (0, 1)),
    *("L1H0 → logits", "L1H1 → logits"),
)
_SUMS = "L0H0 adds the two digits, L0H1 finds the carry; both heads of layer 1 turn the sum into its digit."

ms.methods.plant_circuit(
    "sorted-list-one-head",
    make=single_model,
    pairs=partial(draw_pairs, task=SortedList(), kind="replace_later"),
    family="sorted-list",
    source="L0H0 looks for the next larger value and copies it; L0H1 looks for it too, and writes nothing.",
    edges=tuple(name.format(0) for name in _READS),
)
ms.methods.plant_circuit(
    "sorted-list-two-heads",
    make=graded_model,
    pairs=partial(draw_pairs, task=SortedList(), kind="replace_later"),
    family="sorted-list",
    source="Both heads look for the next larger value, and each gives half of its logit.",
    edges=tuple(name.format(head) for head in (0, 1) for name in _READS),
)
ms.methods.plant_circuit(
    "first-unique",
    make=partial(counter, FirstUnique()),
    pairs=partial(draw_pairs, task=FirstUnique(), kind="repeat_answer"),
    family="first-unique",
    source="L0H0 counts the letters so far; L1H0 looks for the first that it counted once, and copies it.",
    edges=("input → L0H0 v", "L0H0 → L1H0 q", "input → L1H0 k", "input → L1H0 v", "L1H0 → logits"),
)
ms.methods.plant_circuit(
    "palindrome",
    make=mirror_reader,
    pairs=partial(draw_pairs, task=Palindrome(), kind="change_answer"),
    family="palindrome",
    source="L0H0 compares letters with their mirror images; L1H0 looks for one that differs, and says so.",
    edges=("input → L0H0 q", "input → L0H0 k", "L0H0 → L1H0 k", "L0H0 → L1H0 v", "L1H0 → logits"),
)
ms.methods.plant_circuit(
    "sum-carry",
    make=partial(adder, DigitSum()),
    pairs=partial(draw_pairs, task=DigitSum(), kind="flip_carry"),
    family="sum",
    source=_SUMS,
    edges=_ADDER,
)
ms.methods.plant_circuit(
    "sum-digit",
    make=partial(adder, DigitSum()),
    pairs=partial(draw_pairs, task=DigitSum(), kind="change_digit"),
    family="sum",
    source=_SUMS,
    edges=_ADDER,
)
ms.methods.plant_circuit(
    "running-sum",
    make=partial(averaging, RunningSum()),
    pairs=partial(draw_pairs, task=RunningSum(), kind="reorder"),
    family="running-sum",
    source="L0H0 averages the numbers so far; the MLP tells a mean above zero from one below.",
    edges=("input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits"),
)
