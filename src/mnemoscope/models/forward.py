"""A hook-free forward pass on a `HookedTransformer`'s parameters, for training only.

It is a pure function of the parameters, so that gradients and `vmap` over seeds apply to it, and does less work than
the hooked model: the last layer is computed at the scored positions only, and where a task has few tokens and
positions the first attention layer is looked up. Its inputs are then one of few *cells*, a token at a position; what
a cell attends to another with, and what it writes when attended to, is computed once for all sequences. Where only a
silent token at the end asks, tokens are counted (`counted_attention`). Equal to `HookedTransformer` to 1e-5 (tested).
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.core.layers import ACTIVATIONS, Mlp, Norm, projected
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.counted_attention import asks_alone, counted_attention

_EPS = 1e-5
MAX_CELLS = 128
"""Tokens times positions up to which the first attention layer is looked up; larger tables do not pay."""

Parameters = Mapping[str, Tensor]


def logits(
    params: Parameters,
    spec: ModelSpec,
    inputs: Inputs,
    positions: Int[Tensor, " scored"],
    *,
    fused: bool = True,
) -> Float[Tensor, "batch scored d_output"]:
    """Logits, or output vectors, at `positions` (ascending, the same for every sequence).

    Args:
        params: Parameters under `HookedTransformer`'s names.
        spec: The architecture that they belong to.
        inputs: Tokens, or vectors.
        positions: Where outputs are wanted.
        fused: Whether ways are open that take less time but have no rule for `vmap`.
    """
    everywhere = torch.arange(inputs.shape[1], device=inputs.device)
    token, position = params["embed.W_E"], params["pos_embed.W_pos"][: len(everywhere)]
    vectors = inputs.is_floating_point()
    counted = fused and not vectors and asks_alone(spec, inputs, positions, d_vocab=len(token))
    looked_up = spec.attention and spec.softmax and not vectors and len(token) * len(position) <= MAX_CELLS
    residual = torch.empty(0)
    if not (looked_up or counted):
        residual = (inputs @ token if vectors else F.embedding(inputs, token)) + position
    for layer in range(spec.n_layers):
        queries = positions if layer == spec.n_layers - 1 else None
        if counted:
            residual = counted_attention(params, spec, inputs, _norm(params, "blocks.0.ln1", spec))
        elif layer == 0 and looked_up:
            residual = _looked_up(params, spec, inputs, everywhere if queries is None else queries)
        elif spec.attention:
            residual = _at(residual, queries) + _attention(params, layer, spec, residual, queries, fused=fused)
        else:
            residual = _at(residual, queries)
        if spec.mlp and layer >= spec.first_mlp:
            residual = residual + _mlp(params, layer, spec)(residual)
    return projected(_norm(params, "ln_final", spec)(residual), params["unembed.W_U"], params["unembed.b_U"])


def _at(
    values: Float[Tensor, "batch pos width"], queries: Int[Tensor, " query"] | None
) -> Float[Tensor, "batch query width"]:
    """At some positions; none: at all."""
    return values if queries is None else values[:, queries]


def _norm(params: Parameters, name: str, spec: ModelSpec) -> Norm:
    if spec.normalization == "none":
        return Norm(kind=None, eps=_EPS)
    return Norm(kind="LN", eps=_EPS, w=params[f"{name}.w"], b=params[f"{name}.b"])


def _mlp(params: Parameters, layer: int, spec: ModelSpec) -> Mlp:
    ends = {end.lower(): params[f"blocks.{layer}.mlp.{end}"] for end in ("W_in", "b_in", "W_out", "b_out")}
    return Mlp(ln2=_norm(params, f"blocks.{layer}.ln2", spec), activation=ACTIVATIONS[spec.act_fn], **ends)


def _looked_up(
    params: Parameters, spec: ModelSpec, inputs: Int[Tensor, "batch pos"], queries: Int[Tensor, " query"]
) -> Float[Tensor, "batch query d_model"]:
    """The residual stream after the first attention layer, from tables over cells (token, position)."""
    name, n_heads, n_pos = "blocks.0.attn", spec.n_heads, inputs.shape[1]
    everywhere = torch.arange(n_pos, device=inputs.device)
    embedded = (params["embed.W_E"][:, None] + params["pos_embed.W_pos"][:n_pos]).flatten(0, 1)
    n_cells, source = len(embedded), _norm(params, "blocks.0.ln1", spec)(embedded)
    weights = torch.cat([params[f"{name}.W_{kind}"] for kind in "QKV"])
    biases = torch.cat([params[f"{name}.b_{kind}"] for kind in "QKV"])
    q, k, v = torch.baddbmm(biases[:, None], source.expand(3 * n_heads, -1, -1), weights).split(n_heads)
    place = everywhere.repeat(n_cells // n_pos)
    hidden = torch.zeros(n_cells, n_cells, dtype=q.dtype, device=q.device)
    if spec.attention_dir == "causal":
        hidden = hidden.masked_fill(place > place[:, None], -math.inf)
    scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=1 / math.sqrt(spec.head_width))
    written = torch.bmm(v, params[f"{name}.W_O"]).flatten(0, 1)

    cell = inputs * n_pos + everywhere
    absent = torch.full((len(inputs), n_cells), -math.inf, dtype=q.dtype, device=q.device).scatter(1, cell, 0.0)
    cell = cell[:, queries]
    own_scores = F.embedding(cell, scores.transpose(0, 1).flatten(1)).unflatten(-1, (n_heads, n_cells))
    pattern = (own_scores + absent[:, None, None]).softmax(-1).flatten(2)
    return F.embedding(cell, embedded) + F.linear(pattern, written.T, params[f"{name}.b_O"])


def _attention(
    params: Parameters,
    layer: int,
    spec: ModelSpec,
    residual: Float[Tensor, "batch pos d_model"],
    queries: Int[Tensor, " query"] | None,
    *,
    fused: bool,
) -> Float[Tensor, "batch query d_model"]:
    """What attention adds at `queries`; none: everywhere. Queries, keys and values of all positions are one product."""
    name = f"blocks.{layer}.attn"
    source = _norm(params, f"blocks.{layer}.ln1", spec)(residual)

    def heads(kinds: str, x: Tensor) -> tuple[Float[Tensor, "batch head_index pos d_head"], ...]:
        weight = torch.cat([params[f"{name}.W_{kind}"].transpose(1, 2).flatten(0, 1) for kind in kinds])
        bias = torch.cat([params[f"{name}.b_{kind}"].flatten() for kind in kinds])
        found = F.linear(x, weight, bias).unflatten(-1, (len(kinds), spec.n_heads, spec.head_width))
        return tuple(part.transpose(1, 2) for part in found.unbind(2))

    q, k, v = heads("QKV", source) if queries is None else (*heads("Q", source[:, queries]), *heads("KV", source))
    pos = torch.arange(residual.shape[1], device=residual.device)
    last = pos if queries is None else queries
    if spec.attention_dir == "bidirectional":
        last = torch.full_like(last, residual.shape[1] - 1)
    seen = pos <= last[:, None]
    if not spec.softmax:
        z = (q @ k.mT).masked_fill(~seen, 0.0) @ v
    elif fused:
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    else:
        z = (q @ k.mT / math.sqrt(spec.head_width)).masked_fill(~seen, -math.inf).softmax(-1) @ v
    return F.linear(z.transpose(1, 2).flatten(2), params[f"{name}.W_O"].flatten(0, 1).T, params[f"{name}.b_O"])
