"""A model that recalls some of the time."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.systems.tiny_recall.constructed.dissociated import dissociated, dissociated_circuit


@torch.no_grad()
def partial_recall(n_values: int = 5, *, n_recalled: int = 3) -> HookedTransformer:
    """`dissociated` without the neurons that recall the tokens above `n_recalled`.

    Where such a token repeats, head 0 decides and the answer is the unused value. As every token repeats equally
    often, recall is right in `n_recalled / n_values` of the sequences with a repeat; elimination stays exact.

    Args:
        n_values: V of the task.
        n_recalled: How many tokens are recalled, the lowest ones.
    """
    model = dissociated(n_values)
    for key, neurons in dissociated_circuit(n_values).neurons.items():
        if len(key) == 2 and key[0] > n_recalled:  # (query token, value); the others mend slot 1
            model.blocks[0].mlp.W_out[list(neurons)] = 0
    return model
