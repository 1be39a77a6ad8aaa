"""The induction circuit as three associative memories: sums of outer products of random vectors."""

from collections.abc import Collection, Sequence

import torch
from transformer_lens import HookedTransformer

from mnemoscope import ModelSpec
from mnemoscope.core import one_of
from mnemoscope.models import build
from mnemoscope.models.constructed import SURE

MEMORIES = ("previous token", "remapped copy", "copied token")


@torch.no_grad()
def induction_memories(
    n_tokens: int,
    n_ctx: int,
    *,
    d_model: int = 256,
    tokens: Sequence[int] | None = None,
    memories: Collection[str] = MEMORIES,
    margin: float = 20.0,
    seed: int = 0,
) -> HookedTransformer:
    """Two layers, one head each, attention only: what Bietti et al. 2023 predict that training ends in.

    W_Q is the identity; token embeddings e, positions p and unembeddings u are random, and so are W_V and W_O of the
    first layer, which turn e_i into its remapped copy r_i = e_i W_V^1 W_O^1, and W_V of the second. Vectors are rows.
    Each memory is one matrix, up to a factor:

    - `previous token`: W_K^1 = sum over t of p_(t-1)^T p_t, so that position t attends to t - 1;
    - `remapped copy`: W_K^2 = sum over i of r_i^T e_i, so that token i attends to where the token before was i;
    - `copied token`: W_O^2 = sum over i of (e_i W_V^2)^T u_i, so that attending to token i raises its logit.

    Factors are such that the right key has a score of 60 in expectation, and the attended token a logit of `margin`.
    Vectors are orthogonal in expectation only: the wider the model, the fewer the errors. The first position
    has no position before it to attend to, and a token that has not occurred before has no key that matches.

    Args:
        n_tokens: Vocabulary.
        n_ctx: Longest input.
        d_model: Width. With 256, some 19 of 20 outputs of 5 fixed triggers are right, of 65 tokens and 128 positions.
        tokens: Which tokens the remapped copy is about (in the paper the triggers, where they are fixed); none: all.
        memories: Which are set; the matrices of the others stay as random as training finds them.
        margin: Logit of the attended token.
        seed: Of the random vectors and matrices.

    Raises:
        InputError: There is no such memory.
    """
    for memory in memories:
        one_of("a memory", memory, MEMORIES)
    spec = ModelSpec(d_model=d_model, n_heads=1, n_layers=2, mlp=False, normalization="none", initialisation="memories")
    model = build(spec, d_vocab=n_tokens, n_ctx=n_ctx, seed=seed)
    first, second = (block.attn for block in model.blocks)
    token, position, unembedding = model.embed.W_E, model.pos_embed.W_pos, model.unembed.W_U.T
    chosen = token if tokens is None else token[list(tokens)]
    remapped, attended = chosen @ first.W_V[0] @ first.W_O[0], token @ second.W_V[0]
    found = {
        "previous token": (first.W_K, position[:-1], position[1:]),
        "remapped copy": (second.W_K, remapped, chosen),
        "copied token": (second.W_O, attended, unembedding),
    }
    for memory in memories:
        matrix, inputs, outputs = found[memory]
        recalled = inputs.square().sum(1).mean() * outputs.square().sum(1).mean()
        size = margin if memory == "copied token" else 2 * SURE * model.cfg.attn_scale
        matrix[0] = size / recalled * inputs.T @ outputs
    return model
