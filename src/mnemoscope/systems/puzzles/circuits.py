"""Known circuits of the puzzles: hand-set models, with the edges that carry the answer on pairs of one kind.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit. Of trained
models P11 and P13 establish some edges. In one layer the token at the place where the answer is read reaches queries,
MLP and logits; the pairs have the same token there, so that these edges carry nothing.
"""

from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor

import mnemoscope as ms
from mnemoscope.systems.puzzles.analyses.sorted_list import owners
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


def _busiest(trained: ms.Subject) -> int:
    """The head that owns the most values."""
    return int(owners(trained).mean() > 0.5)


def sorting_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The values that the busiest head reads and copies; queries and the direct path carry nothing."""
    head = f"L0H{_busiest(trained)}"
    return {f"input → {head} v", f"{head} → logits"}, {"input → L0H0 q", "input → L0H1 q", "input → logits"}


def sorting_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Lists in which the next value is another one, where the busiest head owns the right answer."""
    pairs = draw_pairs(8 * n, seed, task=trained.task, kind="replace_next")
    asked = torch.arange(trained.task.n_ctx) == pairs.corrupted.known["asker"][:, None]
    own = torch.from_numpy(owners(trained) == _busiest(trained))
    pairs = pairs.read_at(asked)
    return pairs.select(own[pairs.answer[asked]]).select(slice(n))


def summing_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The values of the one head; its even attention, the MLP's own input and the direct path carry nothing."""
    return {"input → L0H0 v"}, {"input → L0H0 q", "input → L0H0 k", "input → L0 MLP", "input → logits"}


def summing_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Sequences in which one value turns the last sum, but the last one, read at the end."""
    pairs = draw_pairs(4 * n, seed, task=trained.task, kind="turn_sum").read_last()
    return pairs.select(_same_at_end(pairs)).select(slice(n))


def _same_at_end(pairs: ms.PromptPairs) -> Bool[Tensor, " prompt"]:
    return pairs.clean.inputs[:, -1] == pairs.corrupted.inputs[:, -1]


TRAINED = (32, 33, 34)
"""The first shipped seeds."""
ms.methods.plant_trained(
    TRAINED,
    name="trained-sorted-list",
    label="sorted-list-quick",
    source=(
        "P11, 16 of 16: the own head of a value looks at the next one and copies it (attention, OV circuit, attention "
        "knocked out). The own head is found by mean ablation. Unjudged: keys, and the other head."
    ),
    sides=sorting_edges,
    pairs=sorting_pairs,
    established_by=("edge-ablation-mean",),
)
ms.methods.plant_trained(
    TRAINED,
    name="trained-running-sum",
    label="running-sum-quick",
    source=(
        "P13, 16 of 16: attention is even whatever the tokens, and the values of the head are the running mean "
        "(patterns and weights). Unjudged: the ways from the head on, since P14 is refuted."
    ),
    sides=summing_edges,
    pairs=summing_pairs,
)
