"""Known circuits of permutation lookup: the hand-set models, with the edges that carry the answer on minimal pairs.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit. Of trained
models T13 and T16 establish some edges. In one layer the last token reaches queries, MLP and logits; the pairs have the
same last token, so that these edges carry nothing.
"""

from functools import partial

import mnemoscope as ms
from mnemoscope.systems.tiny_recall.analyses.carriers import patching_recovery
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


def draw_pairs(n: int, seed: int, *, kind: str, skill: str, task: ms.Task = TASK) -> ms.PromptPairs:
    """Minimal pairs of a skill, read in the last slot."""
    batch = task.monitor(_MOST * n, split="test", generator=ms.generator(seed, "known circuit"))
    batch = batch.select(task.skills(batch)[skill].any(1))
    pairs = ms.PromptPairs.from_task(task, batch, kind=kind, seed=seed)
    pairs = pairs.select(task.skills(pairs.clean)[skill].any(1)).read_last()
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


def recall_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The values of the head that carries them, and the MLP's output; what the last token reaches carries nothing."""
    head = f"L0H{patching_recovery(trained, kind='exchange_answer', skills=('recall',)).argmax()}"
    absent = {"input → L0H0 q", "input → L0H1 q", "input → L0 MLP", "input → logits"}
    return {f"input → {head} v", "L0 MLP → logits"}, absent


def recall_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Repeats whose recalled value changes, over unseen mappings of the run."""
    return draw_pairs(n, seed, kind="exchange_answer", skill="recall", task=trained.task)


ms.methods.plant_trained(
    (64, 65, 66),
    name="trained-recall-value",
    label="v3-quick",
    source=(
        "T13, 18 of 18: one head carries the values (its z patched), and T16, 18 of 18: recall needs the MLP (its "
        "output replaced by the mean). Unjudged: keys, the other head, and the way between head and MLP."
    ),
    sides=recall_edges,
    pairs=recall_pairs,
    established_by=("activation-patching", "activation-patching-denoising", "edge-ablation-mean"),
)
