"""Logits and gradients of the simplified transformer at a few positions, in the basis of its embeddings.

Two attention-only layers of one head without normalisation and biases: what the second layer reads is a combination of
the embeddings of tokens and positions and of their images through W_V W_O of the first layer, 2 (N + T) vectors. Scores
and logits are therefore sums over entries of four small tables, whatever the width. That is exact and makes large
samples cheap; only the other positions are left out.

It returns what the model itself would, to rounding. A model with an MLP, normalisation, biases or more heads is
refused.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError

CHUNK = 512
"""Sequences at once; the tables of more do not stay in the cache."""


def tables(model: HookedModel, n_pos: int) -> tuple[Tensor, ...]:
    """Scores of the first and of the second layer, direct logits, and logits through the second layer.

    They are over basis vectors: tokens, then the first `n_pos` positions (the first table), then their images (the
    others). Raises InputError for a model of another shape.
    """
    config = model.cfg
    if not (config.n_layers == 2 and config.n_heads == 1 and config.attn_only and config.normalization_type is None):
        raise InputError("the model must have two attention-only layers of one head and no normalisation")
    first, second = (block.attn for block in model.blocks)
    named = dict(model.named_parameters())
    unembedding = named["unembed.W_U"]
    basis = torch.cat([named["embed.W_E"], named["pos_embed.W_pos"][:n_pos]])
    both = torch.cat([basis, basis @ first.W_V[0] @ first.W_O[0]])
    scale = math.sqrt(config.d_head)
    return (
        basis @ first.W_Q[0] @ first.W_K[0].T @ basis.T / scale,
        both @ second.W_Q[0] @ second.W_K[0].T @ both.T / scale,
        both @ unembedding,
        both @ second.W_V[0] @ second.W_O[0] @ unembedding,
    )


def logits(
    found: Sequence[Tensor],
    tokens: Int[Tensor, "batch pos"],
    rows: Int[Tensor, " asked"],
    positions: Int[Tensor, " asked"],
) -> Float[Tensor, "asked d_vocab"]:
    """Logits from `tables`, at one position of one of the sequences each."""
    first, second, direct, output = found
    n_pos, n_tokens = tokens.shape[1], direct.shape[1]
    causal = torch.ones(n_pos, n_pos, dtype=torch.bool, device=tokens.device).tril()
    place = torch.eye(n_pos, dtype=first.dtype, device=tokens.device).expand(len(tokens), -1, -1)
    embedded = torch.cat([torch.nn.functional.one_hot(tokens, n_tokens).to(first.dtype), place], -1)
    by_basis = first[tokens] + first[n_tokens:]
    scores = by_basis.gather(2, tokens[:, None].expand(-1, n_pos, -1)) + by_basis[..., n_tokens:]
    mixed = scores.masked_fill(~causal, -math.inf).softmax(-1) @ embedded
    read = torch.cat([embedded, mixed], -1)
    query, keys = read[rows, positions], read[rows]
    match = ((query @ second)[:, None] @ keys.mT)[:, 0].masked_fill(~causal[positions], -math.inf)
    moved = (match.softmax(-1)[:, None] @ keys)[:, 0]
    return query @ direct + moved @ output


def gradient(model: HookedModel, parameter: Tensor, batch: Batch) -> Tensor:
    """Gradient of the mean cross-entropy at the scored positions for a parameter of the model that requires one."""
    n = int(batch.scored.sum())
    if n == 0:
        raise InputError("batch must have a scored position; it has none")
    exact = tables(model, batch.inputs.shape[1])
    leaves = tuple(table.detach().requires_grad_() for table in exact)
    totals = [torch.zeros_like(leaf) for leaf in leaves]
    for start in range(0, len(batch), CHUNK):
        part = batch.select(slice(start, start + CHUNK))
        rows, positions = part.scored.nonzero().T
        if not len(rows):
            continue
        targets = part.targets[rows, positions]
        lost = torch.nn.functional.cross_entropy(logits(leaves, part.inputs, rows, positions), targets, reduction="sum")
        for total, each in zip(totals, torch.autograd.grad(lost, leaves), strict=True):
            total += each / n
    moving = [(table, total) for table, total in zip(exact, totals, strict=True) if table.requires_grad]
    (found,) = torch.autograd.grad([table for table, _ in moving], parameter, [total for _, total in moving])
    return found
