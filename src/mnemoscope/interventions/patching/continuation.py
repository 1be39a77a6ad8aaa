"""The rest of a forward pass after a change of the residual stream: many changes as one batch.

A patch anywhere changes the residual stream at one *point* (before, in the middle of or after a block) from one
position on. What follows needs neither the layers before that point nor the positions before that one: those keep
the keys and values of the run that was changed, and of the last layer only the positions that are read matter.
Changes that start at the same position run together, whatever point they enter at.

Points are numbered along the stream: 2 l before block l, 2 l + 1 between its attention and its MLP, 2 n_layers after
the last block. Equal to `HookedTransformer` to 1e-5 for the models that `packed.unsupported` lets through (tested).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.interventions.patching.packed import Layer, Packed


@dataclass(frozen=True, kw_only=True)
class Past:
    """Keys and values of every layer in the run that is changed, up to the first changed position and beyond."""

    keys: Sequence[Float[Tensor, "prompt head_index pos d_head"]]
    values: Sequence[Float[Tensor, "prompt head_index pos d_head"]]


def continued(
    weights: Packed,
    residual: Float[Tensor, "cell prompt suffix d_model"],
    entered: Sequence[int],
    past: Past,
    read: Int[Tensor, " read"],
) -> Float[Tensor, "cell prompt read d_vocab"]:
    """Logits after changes of the residual stream.

    Args:
        weights: The model.
        residual: The changed stream of every cell at its own point, from the first changed position to the end; cells
            in the order of their points. It is overwritten.
        entered: How many cells have entered up to each point, the point itself included.
        past: Of the run that is changed.
        read: Positions whose logits are wanted, ascending, none before the first changed one.
    """
    start = past.keys[0].shape[2] - residual.shape[2]
    last = len(weights.layers) - 1
    for index, layer in enumerate(weights.layers):
        changed = residual[: entered[2 * index]]
        queries = read - start if index == last else None
        added = _attention(layer, changed, past.keys[index], past.values[index], queries) if len(changed) else None
        if queries is not None:
            residual = residual[:, :, queries]
        if added is not None:
            residual[: len(added)] += added
        if index < last:
            _add_mlp(layer, residual[: entered[2 * index + 1]])
    return ended(weights, residual, entered[2 * last + 1])


def ended(
    weights: Packed, residual: Float[Tensor, "cell prompt read d_model"], through_mlp: int
) -> Float[Tensor, "cell prompt read d_vocab"]:
    """Logits after changes of the stream in or after the last block.

    Args:
        weights: The model.
        residual: The changed stream after the last attention, at the positions that are read. It is overwritten.
        through_mlp: How many cells the last MLP still has to act on, the first ones.
    """
    _add_mlp(weights.layers[-1], residual[:through_mlp])
    rows = weights.ln_final(residual.flatten(0, 2))
    return torch.addmm(weights.b_u, rows, weights.w_u).unflatten(0, residual.shape[:3])


def _add_mlp(layer: Layer, residual: Float[Tensor, "cell prompt some d_model"]) -> None:
    """Change the stream in place as the MLP of a block does."""
    if layer.mlp is not None and len(residual):
        residual += layer.mlp(residual.flatten(0, 2)).view_as(residual)


def _attention(
    layer: Layer,
    residual: Float[Tensor, "cell prompt suffix d_model"],
    keys: Float[Tensor, "prompt head_index pos d_head"],
    values: Float[Tensor, "prompt head_index pos d_head"],
    queries: Int[Tensor, " read"] | None,
) -> Float[Tensor, "cell prompt query d_model"]:
    """What attention adds, at all positions of the suffix or at some of them."""
    n_cells, n_prompts, n_suffix, _ = residual.shape
    normed = layer.ln1(residual.flatten(0, 2))
    own = torch.addmm(layer.b_kv, normed, layer.w_kv).view(n_cells, n_prompts, n_suffix, 2, keys.shape[1], -1)
    own = own.permute(3, 0, 1, 4, 2, 5)
    keys, values = _prolonged(keys, own[0]), _prolonged(values, own[1])
    if queries is not None:
        normed = normed.unflatten(0, residual.shape[:3])[:, :, queries].flatten(0, 2)
    q = torch.addmm(layer.b_q, normed, layer.w_q).view(n_cells, n_prompts, -1, *layer.w_o.shape[:2])
    q = q.transpose(2, 3).flatten(0, 2)
    scores = torch.baddbmm(_future(n_suffix, keys, queries), q, keys.transpose(1, 2))
    z = torch.bmm(scores.softmax(-1), values).unflatten(0, (n_cells, n_prompts, -1)).transpose(2, 3)
    added = torch.addmm(layer.b_o, z.flatten(3).flatten(0, 2), layer.w_o.flatten(0, 1))
    return added.unflatten(0, (n_cells, n_prompts, -1))


def _prolonged(
    past: Float[Tensor, "prompt head_index pos d_head"],
    own: Float[Tensor, "cell prompt head_index suffix d_head"],
) -> Float[Tensor, "row pos d_head"]:
    """Each cell's own keys (or values) after those that it shares with the run that was changed."""
    n_pos, n_suffix = past.shape[2], own.shape[3]
    result = own.new_empty(*own.shape[:3], n_pos, own.shape[4])
    result[..., : n_pos - n_suffix, :] = past[:, :, : n_pos - n_suffix]
    result[..., n_pos - n_suffix :, :] = own
    return result.flatten(0, 2)


def _future(
    n_suffix: int, keys: Float[Tensor, "row pos d_head"], queries: Int[Tensor, " read"] | None
) -> Float[Tensor, "query pos"]:
    """Minus infinity where a key comes after its query."""
    n_pos = keys.shape[1]
    mask = keys.new_full((n_suffix, n_pos), -math.inf).triu(n_pos - n_suffix + 1)
    return mask if queries is None else mask[queries]
