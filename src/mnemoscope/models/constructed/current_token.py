"""A model without attention: the next token depends on the current one only."""

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from mnemoscope.models.constructed.circuit import Circuit, blank, blocks, embed


def bigram_table(logits: Float[Tensor, "token next"], n_ctx: int) -> HookedTransformer:
    """One layer whose heads write nothing: embedding and unembedding alone look the current token up in a table.

    With the identity it says the same token again, with log-probabilities it predicts global bigrams. It is what a
    model can know without its context.

    Args:
        logits: Of every next token, for every current one; finite.
        n_ctx: Longest input.
    """
    circuit = Circuit(dims=blocks(token=len(logits)), heads={})
    model = blank(circuit, d_vocab=len(logits), n_ctx=n_ctx)
    with torch.no_grad():
        embed(model, circuit)
        model.unembed.W_U[circuit.dims["token"]] = logits
    return model
