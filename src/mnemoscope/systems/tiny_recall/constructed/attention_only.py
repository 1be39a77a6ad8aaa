"""Permutation lookup without an MLP: elimination alone, shared by two heads, beside local binding, or beside recall."""

import torch

from mnemoscope.core import in_range
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

UNUSED_TOKEN = -100.0
"""Bias of token 0."""


def elimination_only_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `elimination_only` consists of."""
    dims = dimension_blocks(token=n_values + 1, position=2 * n_values - 1, answer=n_values + 1)
    return CircuitParts(dims=dims, heads={"elimination": (0, 0)})


@torch.no_grad()
def elimination_only(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: answers the value that no earlier pair has used.

    Head 0 attends from everywhere to all y so far alike and writes `-margin * (V - 1) * share` on the answer of each.
    Head 1 has zero weights. The bias of token 0, which is never used, is -100.

    At slot k > 1 each of the k - 1 used values has the logit `-margin * (V - 1) / (k - 1)` and every other value 0: in
    the last slot the unused value has the probability 1 / (1 + (V - 1) exp(-margin)), whether x repeats or not. At slot
    1 there is no y: the head has only x itself to attend to and rules out its token.

    V is `n_values`; `margin` is the logit of the unused value above the used ones in the last slot.
    """
    circuit = elimination_only_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin)
    return model


def lookup_model(circuit: CircuitParts, n_values: int, *, n_layers: int = 1) -> HookedTransformer:
    """A model of permutation lookup with embeddings and the unembedding of `answer`, and nothing in between."""
    in_range("n_values", n_values, 3, 8)
    model = zero_model(circuit, d_vocab=n_values + 1, n_ctx=2 * n_values - 1, n_layers=n_layers)
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(model.cfg.d_vocab)
    model.unembed.b_U[0] = UNUSED_TOKEN
    return model


def elimination_head(model: HookedTransformer, circuit: CircuitParts, margin: float) -> None:
    """Attends to all y so far alike and writes `-margin * (V - 1) * share` on the answer of each."""
    position = directions(model, circuit.dims["position"])
    set_query_key(
        model,
        circuit.heads["elimination"],
        (position.sum(1, keepdim=True), SURE * position[:, 1::2].sum(1, keepdim=True)),
    )
    token, answer = (directions(model, circuit.dims[name]) for name in ("token", "answer"))
    set_value_output(model, circuit.heads["elimination"], (token, -margin * (model.cfg.d_vocab - 2) * answer))


def twin_elimination_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `twin_elimination` consists of."""
    return CircuitParts(dims=elimination_only_circuit(n_values).dims, heads={"first": (0, 0), "second": (0, 1)})


@torch.no_grad()
def twin_elimination(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: the function of `elimination_only`, half of it written by either head.

    The logits are the same up to rounding; `margin` is that of both heads together. Without one of them it is halved
    and the right answer still wins.
    """
    circuit = elimination_only_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin / 2)
    attention = model.blocks[0].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight[1] = weight[0]
    return model


def local_binding_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `local_binding` consists of."""
    values = n_values + 1
    dims = dimension_blocks(token=values, position=2 * n_values - 1, answer=values, bound=values)
    return CircuitParts(dims=dims, heads={"elimination": (0, 0), "binding": (0, 1)})


@torch.no_grad()
def local_binding(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: the heads attend as the published ones are reported to.

    Head 0 is that of `elimination_only`, with its `margin`. Head 1 attends by position alone: from y to itself, from x
    to the y just before it, from the first x to itself. It copies the token it finds into `bound`, which nothing reads.

    So the model eliminates exactly and never recalls, and without head 1 nothing changes: a pattern, and no function.
    """
    circuit = local_binding_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin)
    position, y = directions(model, circuit.dims["position"]), slice(1, None, 2)
    next_x = slice(2, None, 2)
    set_query_key(model, circuit.heads["binding"], (position[:, y] + position[:, next_x], SURE * position[:, y]))
    token, bound = (directions(model, circuit.dims[name]) for name in ("token", "bound"))
    set_value_output(model, circuit.heads["binding"], (token, bound))
    return model


def two_layer_recall_circuit(n_values: int = 5) -> CircuitParts:
    """Names of what `two_layer_recall` consists of."""
    values = n_values + 1
    dims = dimension_blocks(token=values, position=2 * n_values - 1, previous=values, copied=values, answer=values)
    return CircuitParts(dims=dims, heads={"previous": (0, 0), "copy": (0, 1), "elimination": (1, 0), "recall": (1, 1)})


@torch.no_grad()
def two_layer_recall(n_values: int = 5, *, margin: float = 20.0, recall: float = 25.0) -> HookedTransformer:
    """Two layers, two heads each, no MLP: L1H0 eliminates, L1H1 recalls with the help of layer 0.

    - L0H0, the previous-token head, attends from y to the x before it, from x to itself, and copies the token it finds
      into `previous`.
    - L0H1 attends from y to itself, from x to all x so far alike (itself included), and copies tokens, each with its
      share, into `copied`.
    - L1H0 is the head of `elimination_only`.
    - L1H1 matches the query's `token` with the key's `previous` (K-composition with L0H0): from the last x it attends
      to the y after the earlier occurrence of the same x; where nothing matches, to itself. It writes `copied`
      (V-composition with L0H1), times margin + recall, on the answer. On a repeat the recalled value overrides L1H0;
      else, since the x are then all values, every value gets the same.

    At the slots 2 to V - 1, where x never repeats, L1H1 attends to all earlier y alike and weakens L1H0. The used
    values are still ruled out, by ((V - 2) * margin - recall) / (k - 1) at slot k (for V = 3 they are not). At slot 1
    both heads attend to x itself, and its token is ruled out.

    Ablations, seen in the last slot: without L1H0 (zero, mean, resample) elimination is lost and recall stays exact;
    without L1H1 (zero, mean), L0H0 or L0H1 (zero) recall is lost and elimination stays exact. L1H1 resampled from a
    sequence with a repeat disturbs elimination wherever it favours another value than the unused one. With L0H0 at its
    mean L1H1 recalls an earlier y that an accident of the reference set decides: elimination too needs L0H0, to keep
    L1H1 silent.

    V is `n_values`. In the last slot `margin` is the logit of the unused value above the used ones, and `recall` that
    of the recalled value above the others.
    """
    circuit = two_layer_recall_circuit(n_values)
    model = lookup_model(circuit, n_values, n_layers=2)
    token, position, previous, copied, answer = (directions(model, block) for block in circuit.dims.values())
    x, y, last = position[:, ::2], position[:, 1::2], position[:, -1:]
    all_x = x.sum(1, keepdim=True)

    set_query_key(model, circuit.heads["previous"], (x, SURE * x), (y, SURE * x[:, :-1]))
    set_value_output(model, circuit.heads["previous"], (token, previous))
    set_query_key(model, circuit.heads["copy"], (all_x, SURE * all_x), (y, SURE * y))
    set_value_output(model, circuit.heads["copy"], (token, copied))

    elimination_head(model, circuit, margin)
    resting = -4 * SURE * all_x + 3 * SURE * last
    set_query_key(
        model,
        circuit.heads["recall"],
        (token, 2 * SURE * previous),
        (position.sum(1, keepdim=True), resting),
    )
    set_value_output(model, circuit.heads["recall"], (copied, (margin + recall) * answer))
    return model
