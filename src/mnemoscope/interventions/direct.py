"""The forward pass of a plain `HookedTransformer` that computes only what is read, hooks included.

A `HookedTransformer` computes every activation at every position, whoever looks. Here normalisations and projections
are one operation each, and of the last layer only what leads to the places that are read is computed: from the
queries on, if no hook is there, or from behind the last hook. Hooks at the points in `_CALLED` act as in the model,
on activations of all positions. Equal to the model to 1e-5 (tested); a model or a hook that is not reproduced is run
by the model itself.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.core.keeping import kept
from mnemoscope.core.layers import projected
from mnemoscope.core.protocols import HookedModel, reads_vectors
from mnemoscope.interventions.patching.packed import Layer, packed, unlike
from mnemoscope.interventions.reading import logits_at

_BEFORE_QUERIES = ("hook_resid_pre", "attn.hook_k", "attn.hook_v")
_UP_TO_Z = ("attn.hook_q", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z")
_UP_TO_MIDDLE = ("hook_attn_out", "hook_resid_mid")
_UP_TO_END = ("hook_mlp_out", "hook_resid_post")
_CALLED = (*_BEFORE_QUERIES, *_UP_TO_Z, *_UP_TO_MIDDLE, *_UP_TO_END)


def logits_directly(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "place d_vocab"]:
    """`logits_at`, which it equals to 1e-5, with less work where the model is reproduced.

    Results that are compared with each other should come from one of the two.
    """
    outputs = outputs_at(model, inputs, where)
    return logits_at(model, inputs, where) if outputs is None else outputs


def outputs_at(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "place d_vocab"] | None:
    """Logits at some places, row by row; None if the model has to be run itself.

    Args:
        model: Any hooked model.
        inputs: Tokens; a model that reads vectors has to be run itself.
        where: The places.
    """
    if torch.is_grad_enabled() or not _is_plain(model) or (hooked := _hooked(model)) is None:
        return None  # weights are taken without their gradients
    weights: Any = model
    inputs, where = inputs.to(weights.W_E.device), where.to(weights.W_E.device)
    stream = F.embedding(inputs, weights.W_E) + weights.W_pos[: inputs.shape[1]]
    end, last = packed(model, ()), model.cfg.n_layers - 1
    for index in range(last):
        stream = _Block(model, index, hooked).after(stream)
    return projected(end.ln_final(_Block(model, last, hooked).at(stream, where)), end.w_u, end.b_u)


@kept
def _is_plain(model: HookedModel) -> bool:
    """Whether this is a model whose forward pass is reproduced, as long as hooks that are on it are."""
    return type(model).__name__ == "HookedTransformer" and not reads_vectors(model) and unlike(model) is None


def _hooked(model: HookedModel) -> frozenset[str] | None:
    """The points with hooks; None if there are hooks that are not called here."""
    modules: Any = model
    if "forward" in vars(modules):
        return None
    hooked = {
        name
        for name, module in modules.named_modules()
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    }
    points = {f"blocks.{index}.{name}" for index in range(model.cfg.n_layers) for name in _CALLED}
    return frozenset(hooked) if hooked <= points else None


class _Block:
    """One block of a model, with the hooks on it."""

    def __init__(self, model: HookedModel, index: int, hooked: frozenset[str]):
        self._layer: Layer = packed(model, (index,)).layers[0]
        self._name, self._points, self._hooked = f"blocks.{index}", model.hook_dict, hooked

    def _passes(self, name: str, activation: Tensor) -> Tensor:
        """What becomes of an activation at a hook point."""
        name = f"{self._name}.{name}"
        point: Any = self._points[name] if name in self._hooked else None
        return activation if point is None else point(activation)

    def _free_from(self, *names: str) -> bool:
        return not any(f"{self._name}.{name}" in self._hooked for name in names)

    def after(self, stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The stream after the block."""
        stream = self._passes("hook_resid_pre", stream)
        return self._from_z(stream, self._z(stream, None), None)

    def at(
        self, stream: Float[Tensor, "batch pos d_model"], where: Bool[Tensor, "batch pos"]
    ) -> Float[Tensor, "place d_model"]:
        """The stream after the block at some places."""
        stream = self._passes("hook_resid_pre", stream)
        if not self._free_from(*_UP_TO_MIDDLE, *_UP_TO_END):
            return self._from_z(stream, self._z(stream, None), where)
        queries = where.any(0).nonzero()[:, 0] if self._free_from(*_UP_TO_Z) else None
        z = self._z(stream, queries)
        z = z[where if queries is None else where[:, queries]]
        return self._from_z(stream[where], z, None)

    def _z(
        self, stream: Float[Tensor, "batch pos d_model"], queries: Int[Tensor, " query"] | None
    ) -> Float[Tensor, "batch query head_index d_head"]:
        """What heads take from the values, at some queries or at all."""
        layer = self._layer
        normed = layer.ln1(stream)
        split = (len(layer.w_o), -1)
        k, v = projected(normed, layer.w_kv, layer.b_kv).unflatten(-1, (2, *split)).unbind(-3)
        q = projected(normed if queries is None else normed[:, queries], layer.w_q, layer.b_q).unflatten(-1, split)
        if not self._free_from("attn.hook_q"):
            q = self._passes("attn.hook_q", q * layer.scale) / layer.scale
        k, v = self._passes("attn.hook_k", k), self._passes("attn.hook_v", v)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1)
        keys = torch.arange(stream.shape[1], device=stream.device)
        later = keys > (keys if queries is None else queries)[:, None]
        scores = self._passes("attn.hook_attn_scores", scores.masked_fill_(later, -math.inf))
        pattern = scores.softmax(-1)
        if not pattern.sum().isfinite():
            pattern = pattern.nan_to_num()  # a query that sees no key takes nothing
        pattern = self._passes("attn.hook_pattern", pattern)
        return self._passes("attn.hook_z", (pattern @ v.transpose(1, 2)).transpose(1, 2))

    def _from_z(
        self,
        stream: Float[Tensor, "*rows d_model"],
        z: Float[Tensor, "*rows head_index d_head"],
        where: Bool[Tensor, "batch pos"] | None,
    ) -> Float[Tensor, "*rows_after d_model"]:
        """The stream after the block, from the stream before it and z; at some places, if any are named."""
        layer = self._layer
        added = projected(z.flatten(-2), layer.w_o.flatten(0, 1), layer.b_o)
        stream = stream + self._passes("hook_attn_out", added)
        if layer.mlp is not None:
            stream = self._passes("hook_resid_mid", stream)
            if where is not None and self._free_from(*_UP_TO_END):
                stream, where = stream[where], None
            stream = stream + self._passes("hook_mlp_out", layer.mlp(stream))
        stream = self._passes("hook_resid_post", stream)
        return stream if where is None else stream[where]
