"""Hand-set models that tell palindromes: with the published circuit, and by other ways.

Two layers of two heads, attention only, no normalisation. In layer 0 each head compares some pairs: from the place of
such a pair in the second half it attends to the mirror image if the two values are equal, and to itself if not. In a
direction that no other head has it writes 1 where it attends to the second half, and 0 elsewhere, whatever the value.
In layer 1 each head attends from END to places where the heads that it reads have written 1, else to START, and copies
what they wrote to the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_embeddings,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

N_HEADS = 2
MARGIN = 10.0
"""Logit difference of the classes."""


@dataclass(frozen=True, kw_only=True)
class MirrorCircuit:
    """The choices that distinguish the models.

    Attributes:
        compared: The pairs that each head of layer 0 compares; none of them sees any other pair.
        read: The heads of layer 0 that each head of layer 1 reads.
        own_directions: True: every place has a direction of its own, in place of one for all.
        counts: True: heads of layer 1 attend everywhere alike, and add up what they find.
    """

    compared: tuple[tuple[int, ...], tuple[int, ...]] = (tuple(range(10)), ())
    read: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), ())
    own_directions: bool = False
    counts: bool = False


PUBLISHED = MirrorCircuit()
"""One head compares all pairs, and one reads it."""
BLIND = MirrorCircuit(compared=((0, 2, 4, 5, 6, 7, 8, 9), ()))
"""The same, blind to pairs 1 and 3."""
REPAIRED = MirrorCircuit(compared=((1, 2, 4, 5, 6, 7, 8, 9), (0,)), read=((0,), (1,)))
"""Blind to pair 3; the other head of either layer sees to pair 0, and to nothing else."""
SHARED = MirrorCircuit(compared=((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)), read=((0,), (1,)))
"""Two heads of either layer share the pairs."""
OWN_DIRECTIONS = MirrorCircuit(own_directions=True)
"""The published circuit with one direction per place."""
COUNTING = MirrorCircuit(counts=True)
"""The head of layer 1 looks at all places alike."""


def mirror_circuit_parts(task: Palindrome, *, own_directions: bool = False) -> CircuitParts:
    """Names of what `mirror_reader` consists of."""
    written = task.n_ctx if own_directions else 1
    dims = dimension_blocks(token=task.d_vocab, position=task.n_ctx, broken0=written, broken1=written, answer=2)
    heads = {f"{what}{head}": (layer, head) for layer, what in enumerate(("compare", "read")) for head in (0, 1)}
    return CircuitParts(dims=dims, heads=heads)


@torch.no_grad()
def mirror_reader(circuit: MirrorCircuit = PUBLISHED, task: Palindrome | None = None) -> HookedTransformer:
    """The model of the module's docstring, right at every sequence unless it is blind to some pair.

    The logit of `palindrome` is `MARGIN` above that of `broken` where no head of layer 1 finds anything, and as far
    below it where one does; a model that counts has it further below with every broken pair.
    """
    task = Palindrome() if task is None else task
    parts = mirror_circuit_parts(task, own_directions=circuit.own_directions)
    model = zero_model(
        parts,
        d_vocab=task.d_vocab,
        d_vocab_out=len(task.classes),
        n_ctx=task.n_ctx,
        n_layers=2,
        n_heads=N_HEADS,
        d_head=task.d_vocab + task.n_ctx,
    )
    set_embeddings(model, parts)
    answer = directions(model, parts.dims["answer"])
    model.unembed.W_U[:] = answer
    model.unembed.b_U[:] = torch.tensor([-MARGIN / 2, MARGIN / 2])
    for head, pairs in enumerate(circuit.compared):
        if pairs:
            _compare(model, task, parts, head, pairs, own_directions=circuit.own_directions)
    says_broken = MARGIN * (answer[:, :1] - answer[:, 1:])
    for head, heads in enumerate(circuit.read):
        if not heads:
            continue
        found = sum(directions(model, parts.dims[f"broken{number}"]).sum(1, keepdim=True) for number in heads)
        assert isinstance(found, torch.Tensor)
        if circuit.counts:
            set_value_output(model, (1, head), (task.n_ctx * found, says_broken))
            continue
        position = directions(model, parts.dims["position"])
        set_query_key(model, (1, head), (position[:, -1:], SURE * (2 * found + position[:, :1])))
        set_value_output(model, (1, head), (found, says_broken))
    return model


def _compare(
    model: HookedTransformer,
    task: Palindrome,
    parts: CircuitParts,
    head: int,
    pairs: Sequence[int],
    *,
    own_directions: bool,
) -> None:
    """Layer 0: a mirror image with the same value scores 2 SURE, the place itself 1.5, all others at most 1.

    Places of other pairs attend to START, which scores 4 SURE for them.
    """
    token, position = (directions(model, parts.dims[name]) for name in ("token", "position"))
    places = torch.eye(task.n_ctx)
    wanted = torch.zeros(task.n_ctx, task.n_ctx)  # by query and key
    second = [task.second_place(pair) for pair in range(task.half)]
    for pair, place in enumerate(second):
        if pair in pairs:
            wanted[place] = places[pair + 1] + places[place] / 2
        else:
            wanted[place, 0] = 4
    set_query_key(model, (0, head), (token, SURE * token), (position, SURE * position @ wanted.T))
    broken = directions(model, parts.dims[f"broken{head}"])
    there = places[:, second]
    found = position @ there if own_directions else position @ there.sum(1, keepdim=True)
    set_value_output(model, (0, head), (found, broken[:, second] if own_directions else broken))
