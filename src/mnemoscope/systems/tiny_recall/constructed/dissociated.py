"""Elimination and recall, each by a head of its own; and the same with recall of some tokens only."""

import torch

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
)
from mnemoscope.systems.tiny_recall.constructed.attention_only import elimination_head, lookup_model
from mnemoscope.systems.tiny_recall.constructed.recall_mlp import (
    HALF_WIDTH,
    Readings,
    mend_first_slot,
    recall_neurons,
    set_recall,
    slot_weights,
)

OTHER_X = 0.25
"""Weight of an earlier x with another token than the query; the y of the last source slot has weight 1."""


def dissociated_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `dissociated` consists of; neurons by (query token, value), and by (token,) for slot 1."""
    dims = dimension_blocks(
        token=n_values + 1,
        position=2 * n_values - 1,
        stored=n_values + 1,
        source=1,
        missing=1,
        fresh=1,
        unit=1,
        answer=n_values + 1,
    )
    heads = {"elimination": (0, 0), "recall": (0, 1)}
    return CircuitParts(dims=dims, heads=heads, neurons=recall_neurons(n_values))


@torch.no_grad()
def dissociated(n_values: int = 5, *, margin: float = 10.0, recall: float = 30.0) -> HookedTransformer:
    """One layer, two heads and an MLP: head 0 alone eliminates, head 1 and the MLP alone recall.

    With LayerNorm put on top (`ms.constructed.layer_normalised`) it is right up to V = 6, since neurons are sharp and
    rounding in float32 is not; so is `shared_store`.

    *Head 0* is that of `elimination_only`: -margin * (V - 1) * share on the answer of every earlier y.

    *Head 1* attends from the last x to itself with weight W = sum of w, to the y of slot s with weight w_s = 2^(V - 1 -
    s), and to an earlier x with weight 1/4. It does not attend to other keys with the query's own token. With Z, the
    sum of these weights, it writes for the MLP

    - `stored`, for every token, the share of attention on it: for the query's token W/Z, for another token the weight
      of its slot as y, plus 1/4 where it is among the x, by Z;
    - `source`: w_s / Z for the slot s whose x the query repeats (which is left out), 0 without a repeat;
    - `missing`: w_s / Z for the slot s whose y is the query's token (which is left out too), 0 if there is none;
    - `fresh`: 1/Z without a repeat, 0 with one; `unit`: 1/Z.

    *MLP.* For the query token q and every value v, three neurons form a tent around equality of the weight of v
    (`stored` of v; for v = q `missing`) with `source`: v stood in the slot that is repeated. They are inactive unless
    the position is the last, its token is q, head 1 reports q as the query's token, and it reports a repeat; where v
    weighs more than `source` all three are active and cancel. They write `recall` (times the largest Z by Z, at most
    1.4) on the answer v, and so override head 0, which still rules v out. For every token one more neuron is active on
    it at position 0 and takes back what head 0 writes there.

    So the answers are uniform over the unused values at the slots 1 to V - 1; in the last slot the unused value if x is
    new, and else the recalled one. Ablations, seen in the last slot:

    - head 0 (zero, mean, resample): elimination is lost, recall stays exact;
    - head 1 or the MLP (zero, mean): recall is lost, elimination stays exact;
    - head 1 or the MLP, resampled: recall is lost; elimination suffers where the activation comes from a repeat and
      favours another value than the unused one. That is the share (V - 1) / V of repeats for the MLP, and (V - 1) / V^2
      for head 1, since the MLP trusts it only if it reports the token that is there. No circuit can do better: the last
      position alone does not know more.

    V is `n_values`; `margin` is the logit of the unused value above the used ones in the last slot, `recall` what the
    MLP adds to the recalled value.
    """
    circuit = dissociated_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin)
    _recall_head(model, circuit)
    own = float(slot_weights(n_values).sum())
    z_max = 2 * own + (n_values - 2) * OTHER_X
    slope = z_max / (HALF_WIDTH - OTHER_X / 2)
    set_recall(model, circuit, _readings(model, circuit, own), slope=slope, gate=40.0, recall=recall)
    mend_first_slot(model, circuit, margin * (n_values - 1))
    return model


def _recall_head(model: HookedTransformer, circuit: CircuitParts) -> None:
    """Head 1: attention by weights, and what it writes for the MLP."""
    dims, head, weights = circuit.dims, circuit.heads["recall"], slot_weights(model.cfg.d_vocab - 1)
    token, position = directions(model, dims["token"]), directions(model, dims["position"])
    own = weights.sum()
    earlier = torch.stack((torch.full_like(weights, OTHER_X), weights), 1).flatten()
    scores = torch.cat((earlier.log(), own.log()[None] + SURE))
    set_query_key(model, head, (token, -SURE * token), (position.sum(1, keepdim=True), position @ scores[:, None]))

    x, y, last = position[:, :-1:2], position[:, 1::2], position[:, -1:]
    other_x = x.sum(1, keepdim=True) / OTHER_X
    set_value_output(
        model,
        head,
        (token, directions(model, dims["stored"])),
        (last - x @ weights[:, None] / OTHER_X, directions(model, dims["source"])),
        (last - y.sum(1, keepdim=True), directions(model, dims["missing"])),
        (other_x - (len(weights) - 1) / own * last, directions(model, dims["fresh"])),
        (last / own, directions(model, dims["unit"])),
    )


def _readings(model: HookedTransformer, circuit: CircuitParts, own: float) -> dict[tuple[int, int], Readings]:
    """The readings of the MLP; `own` is the weight of the last x for itself."""
    stored = directions(model, circuit.dims["stored"])
    source, missing, fresh, unit = (
        directions(model, circuit.dims[name])[:, 0] for name in ("source", "missing", "fresh", "unit")
    )
    values = range(1, model.cfg.d_vocab)
    return {
        (query, value): Readings(
            difference=(missing if value == query else stored[:, value]) - source - OTHER_X / 2 * unit,
            unit=unit,
            shut=4 * own * fresh + 16 * (own * unit - stored[:, query]),
        )
        for query in values
        for value in values
    }


@torch.no_grad()
def partial_recall(n_values: int = 5, *, n_recalled: int = 3) -> HookedTransformer:
    """`dissociated` without the neurons that recall the tokens above `n_recalled`.

    Where such a token repeats, head 0 decides and the answer is the unused value. As every token repeats equally often,
    recall is right in `n_recalled / n_values` of the sequences with a repeat; elimination stays exact.
    """
    model = dissociated(n_values)
    for key, neurons in dissociated_circuit(n_values).neurons.items():
        if len(key) == 2 and key[0] > n_recalled:  # (query token, value); the others mend slot 1
            model.blocks[0].mlp.W_out[list(neurons)] = 0
    return model
