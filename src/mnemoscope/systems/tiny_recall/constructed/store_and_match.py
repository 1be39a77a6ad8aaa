"""Recall from two heads that carry different things: one what stood where, the other where the match is."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.models.constructed import SURE, Circuit, attend, blocks, directions, move
from mnemoscope.systems.tiny_recall.constructed.elimination import lookup_model
from mnemoscope.systems.tiny_recall.constructed.recall_mlp import HALF_WIDTH, mend_first_slot, slot_weights

_ANY = 0
"""In the place of a query token."""


def store_and_match_circuit(n_values: int = 5) -> Circuit:
    """Names of what `store_and_match` consists of; neurons by (0, value), and by (token,) for slot 1."""
    dims = blocks(
        token=n_values + 1, position=2 * n_values - 1, stored=n_values + 1, source=1, repeat=1, answer=n_values + 1
    )
    values = range(1, n_values + 1)
    tents = {(_ANY, value): tuple(range(3 * value - 3, 3 * value)) for value in values}
    first = {(value,): (3 * n_values + value - 1,) for value in values}
    return Circuit(dims=dims, heads={"store": (0, 0), "match": (0, 1)}, neurons=tents | first)


@torch.no_grad()
def store_and_match(n_values: int = 5, *, margin: float = 10.0, recall: float = 30.0) -> HookedTransformer:
    """One layer, two heads and an MLP that combines what the heads carry, and looks at no query token.

    - *Head 0* is that of `shared_store`: in the last slot it writes w_s = 2^(V - 1 - s) into `stored` of the y of slot
      s, 0 for the unused value, and -margin times that on its answer.
    - *Head 1* attends from the last x to the earlier occurrence of the same x and writes, for an x of slot s < V, w_s
      into `source` and 1 into `repeat`, but not which token it found.
    - *MLP.* For every value three neurons form a tent around equality of `stored` of the value with `source`. They
      are inactive unless the position is the last and `repeat` is 1, and write `margin * w_1 + recall` on the value.
      For every token one more neuron is active on it at position 0 and takes back what head 0 writes there.

    So it answers as `shared_store` does, and what is lost without a part is the same. Put into another sequence, head 0
    alone brings what stood where with it, and head 1 alone which slot is repeated.

    Args:
        n_values: V of the task.
        margin: Logit of the unused value above the used one of slot V - 1.
        recall: Logit of the recalled value above the others, at least.
    """
    circuit = store_and_match_circuit(n_values)
    model = lookup_model(circuit, n_values)
    weights = slot_weights(n_values)
    total = float(weights.sum())
    token, position, stored, source, repeat, answer = (directions(model, block) for block in circuit.dims.values())
    one, x, y, last = position.sum(1, keepdim=True), position[:, :-1:2], position[:, 1::2], position[:, -1:]

    attend(model, circuit.heads["store"], (one, y @ (weights.log() + SURE)[:, None]))
    move(model, circuit.heads["store"], (token, total * (stored - margin * answer)))
    resting = -SURE * last - 3 * SURE * y.sum(1, keepdim=True)
    attend(model, circuit.heads["match"], (token, 2 * SURE * token), (one, resting))
    move(model, circuit.heads["match"], (x @ weights[:, None], source), (x.sum(1, keepdim=True), repeat))

    mlp, shut = model.blocks[0].mlp, 2 * total * (2 * one - repeat - last)[:, 0]
    for value in range(1, n_values + 1):
        difference = stored[:, value] - source[:, 0]
        for neuron, shift, weight in zip(circuit.neurons[_ANY, value], (1, 0, -1), (1, -2, 1), strict=True):
            mlp.W_in[:, neuron] = (difference + shift * HALF_WIDTH * one[:, 0] - shut) / HALF_WIDTH
            mlp.W_out[neuron] = weight * (margin * float(weights[0]) + recall) * answer[:, value]
    mend_first_slot(model, circuit, margin * total)
    return model
