"""Permutation lookup by elimination, with the work shared equally between two heads."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.models.constructed import Circuit
from mnemoscope.systems.tiny_recall.constructed.elimination import (
    elimination_head,
    elimination_only_circuit,
    lookup_model,
)


def twin_elimination_circuit(n_values: int = 5) -> Circuit:
    """Names of what `twin_elimination` consists of."""
    return Circuit(dims=elimination_only_circuit(n_values).dims, heads={"first": (0, 0), "second": (0, 1)})


@torch.no_grad()
def twin_elimination(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: the function of `elimination_only`, half of it written by either head.

    Both heads are that of `elimination_only` with half of its output, so that the logits are the same up to rounding.
    Without one of them the margin is halved and the right answer still wins.

    Args:
        n_values: V of the task.
        margin: Logit of the unused value above the used ones in the last slot, from both heads together.
    """
    circuit = elimination_only_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin / 2)
    attention = model.blocks[0].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight[1] = weight[0]
    return model
