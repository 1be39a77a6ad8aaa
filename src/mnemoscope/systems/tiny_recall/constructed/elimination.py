"""Permutation lookup by elimination, and nothing else."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.core import in_range
from mnemoscope.models.constructed import SURE, Circuit, attend, blank, blocks, directions, embed, move

UNUSED_TOKEN = -100.0
"""Bias of token 0."""


def elimination_only_circuit(n_values: int = 5) -> Circuit:
    """Names of what `elimination_only` consists of."""
    dims = blocks(token=n_values + 1, position=2 * n_values - 1, answer=n_values + 1)
    return Circuit(dims=dims, heads={"elimination": (0, 0)})


@torch.no_grad()
def elimination_only(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: answers the value that no earlier pair has used.

    - Residual stream: `token` and `position` one-hot from the embeddings, `answer` read by the unembedding. The
      bias of token 0, which is never used, is -100.
    - Head 0 attends from everywhere to all y so far alike (positions 1, 3, ...), copies their tokens and writes
      `-margin * (V - 1) * share` on the answer of each.
    - Head 1 has zero weights.

    At slot k > 1 each of the k - 1 used values has the logit `-margin * (V - 1) / (k - 1)` and every other value 0:
    in the last slot the unused value has the probability 1 / (1 + (V - 1) exp(-margin)), whether x repeats or not.
    At slot 1 there is no y: the head has only x itself to attend to and rules out its token.

    Args:
        n_values: V of the task.
        margin: Logit of the unused value above the used ones in the last slot.
    """
    circuit = elimination_only_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin)
    return model


def lookup_model(circuit: Circuit, n_values: int, *, n_layers: int = 1) -> HookedTransformer:
    """A model of permutation lookup with embeddings and the unembedding of `answer`, and nothing in between.

    Raises:
        InputError: The task does not exist with so many values.
    """
    in_range("n_values", n_values, 3, 8)
    model = blank(circuit, d_vocab=n_values + 1, n_ctx=2 * n_values - 1, n_layers=n_layers)
    embed(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(model.cfg.d_vocab)
    model.unembed.b_U[0] = UNUSED_TOKEN
    return model


def elimination_head(model: HookedTransformer, circuit: Circuit, margin: float) -> None:
    """Attends to all y so far alike and writes `-margin * (V - 1) * share` on the answer of each."""
    position = directions(model, circuit.dims["position"])
    attend(
        model,
        circuit.heads["elimination"],
        (position.sum(1, keepdim=True), SURE * position[:, 1::2].sum(1, keepdim=True)),
    )
    token, answer = (directions(model, circuit.dims[name]) for name in ("token", "answer"))
    move(model, circuit.heads["elimination"], (token, -margin * (model.cfg.d_vocab - 2) * answer))
