"""The forward pass of a plain `HookedTransformer` that computes only what is read or watched, hooks included.

A `HookedTransformer` computes every activation at every position, whoever looks. Here normalisations and projections
are one operation each, the first layer is looked up where that pays (`first_layer`), and of the last layer only what
leads to the places that are read is computed: from the queries on, if no hook is there, or from behind the last hook.
Hooks at the points in `_CALLED` act as in the model, on activations of all positions, which can be watched there too.
Equal to the model to 1e-5 (tested); a model or a hook that is not reproduced is run by the model itself.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.core.keeping import kept
from mnemoscope.core.layers import projected, softmax
from mnemoscope.core.protocols import HookedModel, reads_vectors
from mnemoscope.interventions.first_layer import cells_of
from mnemoscope.interventions.patching.packed import Layer, packed, unlike
from mnemoscope.interventions.reading import logits_at

_BEFORE_QUERIES = ("hook_resid_pre", "attn.hook_k", "attn.hook_v")
_UP_TO_Z = ("attn.hook_q", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z")
_UP_TO_MIDDLE = ("hook_attn_out", "hook_resid_mid")
_UP_TO_END = ("hook_mlp_out", "hook_resid_post")
_CALLED = (*_BEFORE_QUERIES, *_UP_TO_Z, *_UP_TO_MIDDLE, *_UP_TO_END)

Watched = Mapping[str, Callable[[Tensor], object]]
"""By hook point a function that is told the activation of all positions there, as hooks leave it."""


def logits_directly(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "place d_vocab"]:
    """`logits_at`, which it equals to 1e-5, with less work where the model is reproduced.

    Results that are compared with each other should come from one of the two.
    """
    outputs = outputs_at(model, inputs, where)
    return logits_at(model, inputs, where) if outputs is None else outputs


def outputs_at(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"], *, watched: Watched | None = None
) -> Float[Tensor, "place d_vocab"] | None:
    """Logits at some places, row by row; None if the model has to be run itself.

    Args:
        model: Any hooked model.
        inputs: Tokens; a model that reads vectors has to be run itself.
        where: The places.
        watched: What is told of activations on the way.
    """
    if (blocks := _blocks(model, inputs, watched or {})) is None:
        return None
    end, last = packed(model, ()), blocks[-1]
    where = where.to(end.w_u.device)
    if len(blocks) == 1 and (stream := last.at_once(where)) is not None:
        return projected(end.ln_final(stream), end.w_u, end.b_u)
    stream = _embedded(model, inputs)
    for block in blocks[:-1]:
        stream = block.after(stream)
    return projected(end.ln_final(last.at(stream, where)), end.w_u, end.b_u)


def watch(model: HookedModel, inputs: Inputs, watched: Watched) -> bool:
    """Run the model as far as something is watched; whether that can be done here.

    Arguments as for `outputs_at`.
    """
    if (blocks := _blocks(model, inputs, watched)) is None:
        return False
    layers = [int(name.split(".")[1]) for name in watched]
    stream, last = _embedded(model, inputs), max(layers, default=-1)
    for block in blocks[:last]:
        stream = block.after(stream)
    if layers:
        blocks[last].as_far_as_watched(stream)
    return True


def _blocks(model: HookedModel, inputs: Inputs, watched: Watched) -> "list[_Block] | None":
    """The blocks with their hooks; None if the model has to be run itself, which knows its weights' gradients."""
    if torch.is_grad_enabled() or not _is_plain(model) or (hooked := _hooked(model)) is None:
        return None
    if not watched.keys() <= _points(model):
        return None
    return [_Block(model, index, hooked, watched, inputs) for index in range(model.cfg.n_layers)]


def _embedded(model: Any, inputs: Inputs) -> Float[Tensor, "batch pos d_model"]:
    """The stream before the first block."""
    return F.embedding(inputs.to(model.W_E.device), model.W_E) + model.W_pos[: inputs.shape[1]]


def _points(model: HookedModel) -> set[str]:
    """Hook points that are called here."""
    return {f"blocks.{index}.{name}" for index in range(model.cfg.n_layers) for name in _CALLED}


@kept
def _is_plain(model: HookedModel) -> bool:
    """Whether this is a model whose forward pass is reproduced, as long as hooks that are on it are."""
    return type(model).__name__ == "HookedTransformer" and not reads_vectors(model) and unlike(model) is None


def _hooked(model: HookedModel) -> frozenset[str] | None:
    """The points with hooks; None if there are hooks that are not called here."""
    if "forward" in vars(model) or _is_hooked(model):
        return None
    hooked = {name for name, module in _parts(model) if _is_hooked(module)}
    return frozenset(hooked) if hooked <= _points(model) else None


def _is_hooked(module: Any) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


@kept
def _parts(model: Any) -> list[tuple[str, torch.nn.Module]]:
    """The modules of a model by name, without itself."""
    return [(name, module) for name, module in model.named_modules() if name]


class _Block:
    """One block of a model, with the hooks on it and what watches it."""

    def __init__(self, model: HookedModel, index: int, hooked: frozenset[str], watched: Watched, inputs: Inputs):
        self._layer: Layer = packed(model, (index,)).layers[0]
        self._name, self._points, self._hooked, self._watched = f"blocks.{index}", model.hook_dict, hooked, watched
        looked_up = index == 0 and self._free_from(*_BEFORE_QUERIES, "attn.hook_q")
        self._cells = cells_of(model, self._layer, inputs) if looked_up else None

    def _passes(self, name: str, activation: Tensor) -> Tensor:
        """What becomes of an activation at a hook point."""
        name = f"{self._name}.{name}"
        if name in self._hooked:
            point: Any = self._points[name]
            activation = point(activation)
        if name in self._watched:
            self._watched[name](activation)
        return activation

    def _free_from(self, *names: str) -> bool:
        names = tuple(f"{self._name}.{name}" for name in names)
        return not any(name in self._hooked or name in self._watched for name in names)

    def as_far_as_watched(self, stream: Float[Tensor, "batch pos d_model"]) -> None:
        """The block up to the last point that is watched there, or what comes soon after it."""
        stream = self._passes("hook_resid_pre", stream)
        z = self._z(stream, None)
        if any(f"{self._name}.{name}" in self._watched for name in (*_UP_TO_MIDDLE, *_UP_TO_END)):
            self._from_z(stream, z, None)

    def at_once(self, where: Bool[Tensor, "batch pos"]) -> Float[Tensor, "place d_model"] | None:
        """The stream after the first block at some places, if it can be had from tables alone."""
        if self._cells is None or not self._free_from(*_UP_TO_Z, *_UP_TO_MIDDLE, *_UP_TO_END):
            return None
        stream = self._cells.after_attention(where)
        return stream if self._layer.mlp is None else stream + self._layer.mlp(stream)

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
        scores, v = self._attended(stream, queries) if self._cells is None else self._cells.attended(queries)
        scores = self._passes("attn.hook_attn_scores", scores)
        pattern = softmax(scores)
        if not pattern.sum().isfinite():
            pattern = pattern.nan_to_num()  # a query that sees no key takes nothing
        pattern = self._passes("attn.hook_pattern", pattern)
        return self._passes("attn.hook_z", (pattern @ v).transpose(1, 2))

    def _attended(
        self, stream: Float[Tensor, "batch pos d_model"], queries: Int[Tensor, " query"] | None
    ) -> tuple[Float[Tensor, "batch head_index query pos"], Float[Tensor, "batch head_index pos d_head"]]:
        """Scores of some queries, or of all, for all keys; and the values of these."""
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
        return scores.masked_fill_(later, -math.inf), v.transpose(1, 2)

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
