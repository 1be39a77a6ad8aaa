"""Known circuits of permutation lookup: the hand-set models, with the edges that carry the answer on minimal pairs.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit.
"""

from functools import partial

import mnemoscope as ms
from mnemoscope.systems.tiny_recall.constructed import (
    elimination_only,
    local_binding,
    store_and_match,
    twin_elimination,
    two_layer_recall,
)
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

TASK = PermutationLookup(repeat_ratio=0.3).for_seed(0)
_MOST = 60
"""Sequences that are drawn for each pair, so that enough of them test the skill."""


def draw_pairs(n: int, seed: int, *, kind: str, skill: str) -> ms.PromptPairs:
    """Minimal pairs of a skill, read in the last slot."""
    batch = TASK.monitor(_MOST * n, split="test", generator=ms.generator(seed, "known circuit"))
    batch = batch.select(TASK.skills(batch)[skill].any(1))
    pairs = ms.PromptPairs.from_task(TASK, batch, kind=kind, seed=seed)
    pairs = pairs.select(TASK.skills(pairs.clean)[skill].any(1)).read_last()
    return pairs.select(slice(n))


ms.methods.plant_circuit(
    "elimination",
    make=elimination_only,
    pairs=partial(draw_pairs, kind="exchange_answer", skill="elimination"),
    source="L0H0 looks at all values so far and rules them out.",
    edges=("input → L0H0 v", "L0H0 → logits"),
    family="elimination",
)
ms.methods.plant_circuit(
    "elimination-twins",
    make=twin_elimination,
    pairs=partial(draw_pairs, kind="exchange_answer", skill="elimination"),
    source="L0H0 and L0H1 do the same; either alone gives the right answer with half the margin.",
    edges=("input → L0H0 v", "L0H0 → logits", "input → L0H1 v", "L0H1 → logits"),
    family="elimination-twins",
)
ms.methods.plant_circuit(
    "elimination-pattern",
    make=local_binding,
    pairs=partial(draw_pairs, kind="exchange_answer", skill="elimination"),
    source="L0H0 rules values out; L0H1 binds values to their keys in a direction that nothing reads.",
    edges=("input → L0H0 v", "L0H0 → logits"),
    family="elimination",
)
ms.methods.plant_circuit(
    "recall-place",
    make=store_and_match,
    pairs=partial(draw_pairs, kind="move_repeat", skill="recall"),
    source="L0H0 stores what stood where, L0H1 finds the repeated slot, the MLP combines both; the slot differs.",
    edges=("input → L0H1 q", "L0H1 → L0 MLP", "L0 MLP → logits"),
    family="recall-mlp",
)
ms.methods.plant_circuit(
    "recall-value",
    make=store_and_match,
    pairs=partial(draw_pairs, kind="exchange_answer", skill="recall"),
    source="L0H0 stores what stood where, L0H1 finds the repeated slot, the MLP combines both; the value differs.",
    edges=("input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits", "L0H0 → logits"),
    family="recall-mlp",
)
ms.methods.plant_circuit(
    "recall-two-layers",
    make=two_layer_recall,
    pairs=partial(draw_pairs, kind="exchange_answer", skill="recall"),
    source="L0H1 copies values, L1H1 finds the pair of the repeated key and writes its value over L1H0.",
    edges=("input → L0H1 v", "L0H1 → L1H1 v", "L1H1 → logits", "input → L1H0 v", "L1H0 → logits"),
    family="recall-two-layers",
)
