"""Models of two layers with weights set by hand: a statistical induction head, and one that counts symbols.

Both have one head in each layer, attention alone, vectors of distances and no normalisation. What they predict is a
linear readout: softmax(gain · frequency).
"""

from typing import Any

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
from mnemoscope.systems.markov.tasks import MarkovChains

BIGRAM_GAIN, UNIGRAM_GAIN = 2.0, 2.5
"""The best of those tried for three symbols, in steps of a half."""


def circuit(n_symbols: int) -> CircuitParts:
    """Names of what the models consist of."""
    dims = dimension_blocks(token=n_symbols, previous=n_symbols, answer=n_symbols)
    return CircuitParts(dims=dims, heads={"previous": (0, 0), "induction": (1, 0)})


def _model(task: MarkovChains) -> HookedTransformer:
    """Tokens in, answers out, and idle heads."""
    parts = circuit(task.n_symbols)
    model = zero_model(parts, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_layers=2, n_heads=1, position_kind="relative")
    set_embeddings(model, parts)
    model.unembed.W_U[parts.dims["answer"]] = torch.eye(task.n_symbols)
    return model


@torch.no_grad()
def bigram_circuit(task: MarkovChains, *, gain: float = BIGRAM_GAIN, looks_back: int = 1) -> HookedTransformer:
    """A statistical induction head: near to the bigram predictor.

    - L0H0 attends to the symbol one back, by the vector of that distance, and copies it into `previous`.
    - L1H0 matches the query's symbol with `previous`: it attends evenly to all successors of the symbol so far, and
      copies them into `answer`. The first position, before which nothing stands, counts as its own successor. A symbol
      that has not been followed yet attends to everything alike.

    With another distance `looks_back` the first layer is wrong, and the second as it was.
    """
    parts, model = circuit(task.n_symbols), _model(task)
    token, previous, answer = (directions(model, block) for block in parts.dims.values())
    first: Any = model.blocks[0].attn
    first.b_Q[0, 0] = model.cfg.attn_scale
    first.W_rel[looks_back, 0] = SURE
    set_value_output(model, parts.heads["previous"], (token, previous))
    set_query_key(model, parts.heads["induction"], (token, SURE * previous))
    set_value_output(model, parts.heads["induction"], (token, gain * answer))
    return model


@torch.no_grad()
def unigram_circuit(task: MarkovChains, *, gain: float = UNIGRAM_GAIN) -> HookedTransformer:
    """L1H0 attends to everything alike and copies it into `answer`: near to the unigram predictor."""
    parts, model = circuit(task.n_symbols), _model(task)
    token, _, answer = (directions(model, block) for block in parts.dims.values())
    set_value_output(model, parts.heads["induction"], (token, gain * answer))
    return model
