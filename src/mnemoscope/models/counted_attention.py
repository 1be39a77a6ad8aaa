"""Attention of one silent query over a bag of tokens, for training.

Without positions a token attends, and is attended to, alike wherever it stands; and a silent token at the end of every
sequence asks with one and the same vector. Then scores and values belong to tokens, not to positions, and of a
sequence only matters how often each token occurs. With c_v that number, s_v the score of token v and x_v its value,

    z = Σ_v c_v exp(s_v) x_v / Σ_v c_v exp(s_v)         (without a softmax: z = Σ_v c_v s_v x_v)

for all sequences and heads at once: one product of the counts with a table that has a row a token. The table is in
float64, so that a token whose score is hundreds below that of another one still counts where the other does not occur.
"""

import math
from collections.abc import Mapping

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.layers import Norm, projected
from mnemoscope.core.specification import ModelSpec


def asks_alone(
    spec: ModelSpec, inputs: Int[Tensor, "batch pos"], queries: Int[Tensor, " query"], *, d_vocab: int
) -> bool:
    """Whether the only query is a silent token at the end of every sequence, in the only layer of a model without
    positions.
    """
    if spec.silent is None or spec.positions or not spec.attention or spec.n_layers > 1:
        return False
    at_the_end = len(queries) == 1 and int(queries[0]) == inputs.shape[1] - 1
    return at_the_end and bool((inputs[:, -1] == spec.silent % d_vocab).all())


def counted_attention(
    params: Mapping[str, Tensor], spec: ModelSpec, inputs: Int[Tensor, "batch pos"], ln1: Norm
) -> Float[Tensor, "batch 1 d_model"]:
    """The residual stream of the query after attention.

    Args:
        params: Parameters under `HookedTransformer`'s names.
        spec: An architecture for which `asks_alone` holds.
        inputs: Tokens.
        ln1: The normalisation before attention.
    """
    token, n = params["embed.W_E"], len(inputs)
    source = ln1(token)
    silent = source[spec.silent]

    def heads(kind: str, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows head_index d_head"]:
        weight, bias = params[f"blocks.0.attn.W_{kind}"], params[f"blocks.0.attn.b_{kind}"]
        return einsum(x, weight, "... d_model, head d_model width -> ... head width") + bias

    scores = einsum(heads("Q", silent), heads("K", source), "head width, token head width -> token head").double()
    values = heads("V", source).double()
    counts = scores.new_zeros(n, len(token)).scatter_add_(1, inputs, scores.new_ones(inputs.shape))
    if spec.softmax:
        scores = scores / math.sqrt(spec.head_width)
        weights = (scores - scores.detach().amax(0)).exp()
        table = torch.cat(((weights[..., None] * values).flatten(1), weights), 1)
        total = (counts @ table).split((values[0].numel(), spec.n_heads), 1)
        z = total[0].unflatten(1, (spec.n_heads, -1)) / total[1][..., None]
    else:
        z = (counts @ (scores[..., None] * values).flatten(1)).unflatten(1, (spec.n_heads, -1))
    w_o, b_o = params["blocks.0.attn.W_O"], params["blocks.0.attn.b_O"]
    written = projected(z.flatten(1).to(w_o), w_o.flatten(0, 1), b_o)
    return (token[spec.silent] + written)[:, None]
