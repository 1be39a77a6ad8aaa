"""A hook-free forward pass on a `HookedTransformer`'s parameters, for training only.

It is a pure function of the parameters, so that gradients and `vmap` over seeds apply to it, and does less work
than the hooked
model: in layer 0, whose inputs are a token and a position, queries, keys and values are computed once per (token,
position) and looked up; the last layer is computed at the scored positions only. Equal to `HookedTransformer` to
1e-5 (tested).
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.specification import ModelSpec

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}
_EPS = 1e-5

Parameters = Mapping[str, Tensor]


def logits(
    params: Parameters, spec: ModelSpec, inputs: Int[Tensor, "batch pos"], positions: Int[Tensor, " scored"]
) -> Float[Tensor, "batch scored d_vocab"]:
    """Logits at `positions` (ascending, the same for every sequence).

    Args:
        params: Parameters under `HookedTransformer`'s names.
        spec: The architecture that they belong to.
        inputs: Tokens.
        positions: Where logits are wanted.
    """
    n_batch, n_pos = inputs.shape
    everywhere = torch.arange(n_pos, device=inputs.device)
    cell = inputs * n_pos + everywhere
    table = (params["embed.W_E"][:, None] + params["pos_embed.W_pos"][:n_pos]).flatten(0, 1)
    residual = table
    for layer in range(spec.n_layers):
        queries = positions if layer == spec.n_layers - 1 else everywhere
        entering = residual
        if spec.attention:
            q, k, v = _qkv(params, layer, _norm(params, f"blocks.{layer}.ln1", entering, spec))
            own, keys = torch.cat((entering, q), -1), torch.cat((k, v), -1)
            if layer == 0:
                own, keys = F.embedding(cell[:, queries], own), F.embedding(cell, keys)
            else:
                own, keys = own.view(n_batch, n_pos, -1)[:, queries], keys.view(n_batch, n_pos, -1)
            residual, q = own.split(spec.d_model, -1)
            residual = residual.flatten(0, 1) + _attend(params, layer, spec, q, keys, queries)
        elif layer == 0:
            residual = F.embedding(cell[:, queries], entering).flatten(0, 1)
        else:
            residual = entering.view(n_batch, n_pos, -1)[:, queries].flatten(0, 1)
        if spec.mlp:
            residual = residual + _mlp(params, layer, spec, residual)
    read = F.linear(_norm(params, "ln_final", residual, spec), params["unembed.W_U"].T, params["unembed.b_U"])
    return read.view(n_batch, len(positions), -1)


def _norm(params: Parameters, name: str, x: Tensor, spec: ModelSpec) -> Tensor:
    if spec.normalization == "none":
        return x
    return F.layer_norm(x, x.shape[-1:], params[f"{name}.w"], params[f"{name}.b"], _EPS)


def _qkv(params: Parameters, layer: int, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, heads side by side in the last axis."""
    name = f"blocks.{layer}.attn"
    q, k, v = (
        F.linear(source, params[f"{name}.W_{kind}"].transpose(1, 2).flatten(0, 1), params[f"{name}.b_{kind}"].flatten())
        for kind in "QKV"
    )
    return q, k, v


def _attend(
    params: Parameters,
    layer: int,
    spec: ModelSpec,
    q: Float[Tensor, "batch query d_model"],
    kv: Float[Tensor, "batch key both"],
    queries: Int[Tensor, " query"],
) -> Float[Tensor, "batch_query d_model"]:
    d_head = spec.d_model // spec.n_heads
    heads = (spec.n_heads, d_head)
    q = (q / math.sqrt(d_head)).unflatten(-1, heads).transpose(1, 2)
    k, v = kv.unflatten(-1, (2, *heads)).permute(2, 0, 3, 1, 4)
    future = torch.arange(kv.shape[1], device=kv.device)[:, None] > queries
    bias = torch.zeros(future.shape, dtype=kv.dtype, device=kv.device).masked_fill(future, -math.inf)
    pattern = (k @ q.transpose(-1, -2) + bias).softmax(-2)  # keys before queries: the softmax then runs along memory
    z = (pattern.transpose(-1, -2) @ v).transpose(1, 2).flatten(2).flatten(0, 1)
    return F.linear(z, params[f"blocks.{layer}.attn.W_O"].flatten(0, 1).T, params[f"blocks.{layer}.attn.b_O"])


def _mlp(params: Parameters, layer: int, spec: ModelSpec, residual: Tensor) -> Tensor:
    name = f"blocks.{layer}.mlp"
    normed = _norm(params, f"blocks.{layer}.ln2", residual, spec)
    hidden = _ACTIVATIONS[spec.act_fn](F.linear(normed, params[f"{name}.W_in"].T, params[f"{name}.b_in"]))
    return F.linear(hidden, params[f"{name}.W_out"].T, params[f"{name}.b_out"])
