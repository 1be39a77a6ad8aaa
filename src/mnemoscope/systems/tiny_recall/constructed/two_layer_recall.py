"""Recall by composition of two layers, beside elimination by a head of its own; attention only."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.models.constructed import SURE, Circuit, attend, blocks, directions, move
from mnemoscope.systems.tiny_recall.constructed.elimination import elimination_head, lookup_model


def two_layer_recall_circuit(n_values: int = 5) -> Circuit:
    """Names of what `two_layer_recall` consists of."""
    values = n_values + 1
    dims = blocks(token=values, position=2 * n_values - 1, previous=values, copied=values, answer=values)
    return Circuit(dims=dims, heads={"previous": (0, 0), "copy": (0, 1), "elimination": (1, 0), "recall": (1, 1)})


@torch.no_grad()
def two_layer_recall(n_values: int = 5, *, margin: float = 20.0, recall: float = 25.0) -> HookedTransformer:
    """Two layers, two heads each, no MLP: L1H0 eliminates, L1H1 recalls with the help of layer 0.

    Residual stream: `token` and `position` one-hot from the embeddings; `previous` and `copied`, written by layer 0;
    `answer`, read by the unembedding. The bias of token 0 is -100.

    - L0H0, the previous-token head, attends from y to the x before it, from x to itself, and copies the token it
      finds into `previous`.
    - L0H1 attends from y to itself, from x to all x so far alike (itself included), and copies tokens, each with its
      share, into `copied`.
    - L1H0 is the head of `elimination_only`: -margin * (V - 1) * share on the answer of every earlier y.
    - L1H1 matches the query's `token` with the key's `previous` (K-composition with L0H0): from the last x it attends
      to the y after the earlier occurrence of the same x; where nothing matches, to itself. It writes `copied`
      (V-composition with L0H1), times margin + recall, on the answer: on a repeat the recalled value, which overrides
      L1H0; else, since the x are then all values, the same on every value, which favours none.

    At the slots 2 to V - 1, where x never repeats, L1H1 attends to all earlier y alike and weakens L1H0; the used
    values are still ruled out, by ((V - 2) * margin - recall) / (k - 1) at slot k (for V = 3 they are not). At slot 1
    both heads attend to x itself, and its token is ruled out.

    Ablations, seen in the last slot: without L1H0 (zero, mean, resample) elimination is lost and recall stays exact;
    without L1H1 (zero, mean) recall is lost and elimination stays exact. L1H1 resampled from a sequence with a repeat
    disturbs elimination wherever it favours another value than the unused one. Without L0H0 or L0H1 (zero) recall is
    lost and elimination stays exact. With L0H0 at its mean L1H1 recalls an earlier y that an accident of the reference
    set decides: the head is needed for elimination too, to keep L1H1 silent.

    Args:
        n_values: V of the task.
        margin: Logit of the unused value above the used ones in the last slot.
        recall: Logit of the recalled value above the others.
    """
    circuit = two_layer_recall_circuit(n_values)
    model = lookup_model(circuit, n_values, n_layers=2)
    token, position, previous, copied, answer = (directions(model, block) for block in circuit.dims.values())
    x, y, last = position[:, ::2], position[:, 1::2], position[:, -1:]
    all_x = x.sum(1, keepdim=True)

    attend(model, circuit.heads["previous"], (x, SURE * x), (y, SURE * x[:, :-1]))
    move(model, circuit.heads["previous"], (token, previous))
    attend(model, circuit.heads["copy"], (all_x, SURE * all_x), (y, SURE * y))
    move(model, circuit.heads["copy"], (token, copied))

    elimination_head(model, circuit, margin)
    resting = -4 * SURE * all_x + 3 * SURE * last
    attend(
        model,
        circuit.heads["recall"],
        (token, 2 * SURE * previous),
        (position.sum(1, keepdim=True), resting),
    )
    move(model, circuit.heads["recall"], (copied, (margin + recall) * answer))
    return model
