"""Known circuits of permutation lookup: the hand-set models, with the edges that carry the answer on minimal pairs.

Positions are the same on both sides of a pair, so that edges that carry nothing else are not in the circuit.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A hand-set model with the kind of pairs, the skill that they test, and the edges that carry the answer."""

    make: Callable[[], ms.HookedModel]
    kind: str
    skill: str
    source: str
    edges: tuple[str, ...]
    family: str


def draw_pairs(n: int, seed: int, *, kind: str, skill: str) -> ms.PromptPairs:
    """Minimal pairs of a skill, read in the last slot."""
    batch = TASK.monitor(_MOST * n, split="test", generator=ms.generator(seed, "known circuit"))
    batch = batch.select(TASK.skills(batch)[skill].any(1))
    pairs = ms.PromptPairs.from_task(TASK, batch, kind=kind, seed=seed)
    pairs = pairs.select(TASK.skills(pairs.clean)[skill].any(1)).read_last()
    return pairs.select(slice(n))


PLANTED = {
    "elimination": Planted(
        make=elimination_only,
        kind="exchange_answer",
        skill="elimination",
        source="L0H0 looks at all values so far and rules them out.",
        edges=("input → L0H0 v", "L0H0 → logits"),
        family="elimination",
    ),
    "elimination-twins": Planted(
        make=twin_elimination,
        kind="exchange_answer",
        skill="elimination",
        source="L0H0 and L0H1 do the same; either alone gives the right answer with half the margin.",
        edges=("input → L0H0 v", "L0H0 → logits", "input → L0H1 v", "L0H1 → logits"),
        family="elimination-twins",
    ),
    "elimination-pattern": Planted(
        make=local_binding,
        kind="exchange_answer",
        skill="elimination",
        source="L0H0 rules values out; L0H1 binds values to their keys in a direction that nothing reads.",
        edges=("input → L0H0 v", "L0H0 → logits"),
        family="elimination",
    ),
    "recall-place": Planted(
        make=store_and_match,
        kind="move_repeat",
        skill="recall",
        source="L0H0 stores what stood where, L0H1 finds the repeated slot, the MLP combines both; the slot differs.",
        edges=("input → L0H1 q", "L0H1 → L0 MLP", "L0 MLP → logits"),
        family="recall-mlp",
    ),
    "recall-value": Planted(
        make=store_and_match,
        kind="exchange_answer",
        skill="recall",
        source="L0H0 stores what stood where, L0H1 finds the repeated slot, the MLP combines both; the value differs.",
        edges=("input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits", "L0H0 → logits"),
        family="recall-mlp",
    ),
    "recall-two-layers": Planted(
        make=two_layer_recall,
        kind="exchange_answer",
        skill="recall",
        source="L0H1 copies values, L1H1 finds the pair of the repeated key and writes its value over L1H0.",
        edges=("input → L0H1 v", "L0H1 → L1H1 v", "L1H1 → logits", "input → L1H0 v", "L1H0 → logits"),
        family="recall-two-layers",
    ),
}


def known_circuit(name: str) -> ms.methods.KnownCircuit:
    """A planted circuit by name."""
    planted = PLANTED[name]
    return ms.methods.KnownCircuit(
        name=name,
        family=planted.family,
        source=planted.source,
        model=planted.make(),
        pairs=partial(draw_pairs, kind=planted.kind, skill=planted.skill),
        edges=frozenset(planted.edges),
    )


for _name in PLANTED:
    ms.methods.KNOWN_CIRCUITS.add(_name, partial(known_circuit, _name))
