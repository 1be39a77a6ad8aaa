"""One head stores what stood where, the other finds the repeat, and the MLP combines them."""

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
)
from mnemoscope.systems.tiny_recall.constructed.attention_only import lookup_model
from mnemoscope.systems.tiny_recall.constructed.recall_mlp import (
    HALF_WIDTH,
    Readings,
    mend_first_slot,
    recall_neurons,
    set_recall,
    set_tent,
    slot_weights,
)

_ANY = 0
"""In the place of a query token."""
Columns = Float[Tensor, "d_model _"]


def shared_store_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `shared_store` consists of; neurons by (query token, value), and by (token,) for slot 1."""
    dims = dimension_blocks(
        token=n_values + 1,
        position=2 * n_values - 1,
        stored=n_values + 1,
        matched=n_values + 1,
        source=1,
        repeat=1,
        answer=n_values + 1,
    )
    heads = {"store": (0, 0), "match": (0, 1)}
    return CircuitParts(dims=dims, heads=heads, neurons=recall_neurons(n_values))


@torch.no_grad()
def shared_store(n_values: int = 5, *, margin: float = 10.0, recall: float = 30.0) -> HookedTransformer:
    """One layer, two heads and an MLP: head 0 stores what stood where, for both skills; head 1 finds the repeat.

    *Head 0* attends to the y of slot s with weight w_s = 2^(V - 1 - s), from everywhere and whatever the tokens are.
    With W = sum of w it writes W * share into `stored` of the token (in the last slot w_s: a whole number that says in
    which slot the value stood, 0 for the unused value), and -margin times that on its answer.

    *Head 1* attends from the last x to the earlier occurrence of the same x, without one to itself; from an earlier x
    to itself. It copies the token it finds into `matched` and writes, for an x of slot s < V, w_s into `source` and 1
    into `repeat`; for the last x nothing.

    *MLP.* For the query token q and every value v, three neurons form a tent around equality of `stored` of v with
    `source`. They are inactive unless the position is the last, its token is q, `matched` says q and `repeat` says 1;
    where v weighs more than `source` all three are active and cancel. They write `margin * w_1 + recall` on the answer
    v, and so override head 0, which still rules v out. For every token one more neuron is active on it at position 0
    and takes back what head 0 writes there.

    The answers are those of `dissociated`. Ablations, seen in the last slot:

    - head 0 (zero, mean, resample): both skills are lost;
    - head 1 or the MLP (zero, mean): recall is lost, elimination stays exact;
    - head 1 or the MLP, resampled: as in `dissociated`, but elimination suffers in 1/V of the repeats for head 1, which
      the MLP trusts only if `matched` is the token that is there.

    V is `n_values`. `margin` is the logit of the unused value above the used one of slot V - 1; above that of slot s it
    is w_s times as much. The logit of the recalled value is at least `recall` above the others.
    """
    circuit = shared_store_circuit(n_values)
    model = lookup_model(circuit, n_values)
    token, position, stored, matched, source, repeat, _ = (directions(model, block) for block in circuit.dims.values())
    _heads(model, circuit, margin, (token, matched))
    weights, one = slot_weights(n_values), position.sum(1)
    total = float(weights.sum())
    values = range(1, n_values + 1)
    readings = {
        (query, value): Readings(
            difference=stored[:, value] - source[:, 0],
            unit=one,
            shut=4 * total * (2 * one - repeat[:, 0] - matched[:, query]),
        )
        for query in values
        for value in values
    }
    height = margin * float(weights[0]) + recall
    set_recall(model, circuit, readings, slope=1 / HALF_WIDTH, gate=2 * total, recall=height)
    mend_first_slot(model, circuit, margin * total)
    return model


def store_and_match_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `store_and_match` consists of; neurons by (0, value), and by (token,) for slot 1."""
    dims = dimension_blocks(
        token=n_values + 1, position=2 * n_values - 1, stored=n_values + 1, source=1, repeat=1, answer=n_values + 1
    )
    neurons = recall_neurons(n_values, queries=(_ANY,))
    return CircuitParts(dims=dims, heads={"store": (0, 0), "match": (0, 1)}, neurons=neurons)


@torch.no_grad()
def store_and_match(n_values: int = 5, *, margin: float = 10.0, recall: float = 30.0) -> HookedTransformer:
    """One layer, two heads and an MLP that combines what the heads carry, and looks at no query token.

    It is `shared_store`, except that head 1 does not write which token it found. For every value, not every pair of
    query token and value, three neurons form the tent; they are inactive unless the position is the last and `repeat`
    is 1.

    So it answers as `shared_store` does, and what is lost without a part is the same. Put into another sequence, head 0
    alone brings what stood where with it, and head 1 alone which slot is repeated.
    """
    circuit = store_and_match_circuit(n_values)
    model = lookup_model(circuit, n_values)
    _heads(model, circuit, margin)
    _, position, stored, source, repeat, _ = (directions(model, block) for block in circuit.dims.values())
    weights, one = slot_weights(n_values), position.sum(1)
    total = float(weights.sum())
    shut = 2 * total * (2 * one - repeat[:, 0] - position[:, -1])
    for value in range(1, n_values + 1):
        read = Readings(difference=stored[:, value] - source[:, 0], unit=one, shut=shut)
        height = margin * float(weights[0]) + recall
        set_tent(model, circuit, (_ANY, value), read, slope=1 / HALF_WIDTH, height=height)
    mend_first_slot(model, circuit, margin * total)
    return model


def _heads(model: HookedTransformer, circuit: CircuitParts, margin: float, *copied: tuple[Columns, Columns]) -> None:
    """Head 0 stores what stood where and rules it out, head 1 finds the repeat; it copies as well what is given."""
    token, position, stored, source, repeat, answer = (
        directions(model, circuit.dims[name]) for name in ("token", "position", "stored", "source", "repeat", "answer")
    )
    one, x, y, last = position.sum(1, keepdim=True), position[:, :-1:2], position[:, 1::2], position[:, -1:]
    weights = slot_weights(model.cfg.d_vocab - 1)
    set_query_key(model, circuit.heads["store"], (one, y @ (weights.log() + SURE)[:, None]))
    set_value_output(model, circuit.heads["store"], (token, float(weights.sum()) * (stored - margin * answer)))
    resting = -SURE * last - 3 * SURE * y.sum(1, keepdim=True)
    set_query_key(model, circuit.heads["match"], (token, 2 * SURE * token), (one, resting))
    set_value_output(
        model, circuit.heads["match"], *copied, (x @ weights[:, None], source), (x.sum(1, keepdim=True), repeat)
    )
