"""The weights of heads as attention and the unembedding see them.

LayerNorm gives w * (x - mean(x)) / sigma(x) + b. All of it except the division by sigma is linear, and can be moved
into the matrices that read: W_Q becomes C diag(w) W_Q, where C subtracts the mean over the residual stream, and b_Q
becomes b_Q + b W_Q; likewise for keys, values and the unembedding. The matrices that write (W_E, W_pos, W_O) are
centred, since no reader sees their mean. This is the folding of Elhage et al. 2021 and of TransformerLens (`fold_ln`,
`center_writing_weights`); the model is not changed, and the unembedding is not centred over the vocabulary.

What is left is the division by sigma, the root of the variance plus eps (`analyses.head_sigmas`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel, ModelLike, norm_gain, position_kind, resolve_model, without_hooks
from mnemoscope.interventions.writing import is_classic

_NOT_LINEAR = {
    "use_qk_norm": "normalises queries and keys",
    "attn_scores_soft_cap": "caps its attention scores",
    "clip_qkv": "clips queries, keys and values",
    "use_logn_attn": "scales queries by the length of the input",
    "use_attention_sinks": "has attention sinks",
    "output_logits_soft_cap": "caps its logits",
    "post_embedding_ln": "normalises its embeddings",
    "use_normalization_before_and_after": "normalises what attention writes",
    "per_layer_head_dim": "has heads of several widths",
    "load_in_4bit": "keeps its weights in four bits",
}
_GAP = 1e-2
"""Share of the largest value by which what a bridge computes may miss what its weights say; bfloat16 rounds to 4e-3."""
_KINDS = (None, "LN", "LNPre", "RMS", "RMSPre")


@dataclass(frozen=True, kw_only=True, eq=False)
class EffectiveWeights:
    """Folded weights of some `layers`, in float64.

    `W_pos` is None where positions are not added to the residual stream (rotary, say). Products of queries and keys are
    divided by `attn_scale`. The stream is divided by sigma before it is read if `normalised`; sigma is that of the
    centred stream (LayerNorm) if `centred`.
    """

    layers: tuple[int, ...]
    W_E: Float[Tensor, "d_vocab d_model"]
    W_pos: Float[Tensor, "n_ctx d_model"] | None
    W_Q: Float[Tensor, "layer head_index d_model d_head"]
    W_K: Float[Tensor, "layer head_index d_model d_head"]
    W_V: Float[Tensor, "layer head_index d_model d_head"]
    W_O: Float[Tensor, "layer head_index d_head d_model"]
    b_Q: Float[Tensor, "layer head_index d_head"]  # noqa: N815 (TransformerLens's name)
    b_K: Float[Tensor, "layer head_index d_head"]  # noqa: N815 (TransformerLens's name)
    b_V: Float[Tensor, "layer head_index d_head"]  # noqa: N815 (TransformerLens's name)
    W_U: Float[Tensor, "d_model d_vocab_out"]
    attn_scale: Float[Tensor, " layer"]
    normalised: bool
    centred: bool
    eps: float

    def sigma(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows"]:
        """The divisor of normalisation for this residual stream; one without normalisation."""
        if not self.normalised:
            return torch.ones_like(residual[..., 0])
        residual = residual - residual.mean(-1, keepdim=True) if self.centred else residual
        return (residual.pow(2).mean(-1) + self.eps).sqrt()

    @property
    def coords(self) -> dict[str, list]:
        """Coordinates of a result over (layer, head)."""
        return {"layer": list(self.layers), "head": list(range(self.W_Q.shape[1]))}

    @property
    def description(self) -> str:
        """The processing of the weights, for results."""
        if not self.normalised:
            return "unprocessed"
        return "LayerNorm folded" if self.centred else "gain of RMS normalisation folded"


@check_arguments
@torch.no_grad()
def effective_weights(model: ModelLike, layers: Sequence[int] | None = None) -> EffectiveWeights:
    """The folded weights of a model, whose own weights stay as they are.

    Raises InputError where attention scores and logits are no products of weight matrices (up to sigma), a weight is
    not finite, or there is no such layer.

    >>> ms.analyses.effective_weights(model).W_V.shape
    torch.Size([1, 2, 32, 16])
    """
    model = resolve_model(model)
    _check_supported(model.cfg)
    chosen = tuple(check_indices("layers", layers, model.cfg.n_layers))
    weights: Any = model
    kind = model.cfg.normalization_type
    centred = kind in ("LN", "LNPre")
    standard = position_kind(model) == "standard"
    read = [_reading(weights.blocks[layer], kind, model.cfg.n_heads) for layer in chosen]
    w_u = _finite("W_U", weights.unembed.W_U)
    w_u, b_u = _folded(w_u, _bias("b_U", weights.unembed.b_U, w_u), getattr(weights, "ln_final", None), kind)
    found = EffectiveWeights(
        layers=chosen,
        W_E=_centred(_finite("W_E", weights.embed.W_E), centred),
        W_pos=_centred(_finite("W_pos", weights.pos_embed.W_pos), centred) if standard else None,
        **{name: torch.stack([layer[name] for layer in read]) for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")},
        W_O=torch.stack([_centred(_finite("W_O", weights.blocks[layer].attn.W_O), centred) for layer in chosen]),
        W_U=w_u,
        attn_scale=torch.tensor([_attn_scale(model.cfg, n) for n in chosen], dtype=torch.double, device=w_u.device),
        normalised=kind is not None,
        centred=centred,
        eps=model.cfg.eps,
    )
    if not is_classic(model):
        _check_reads(model, found, b_u)
    return found


def _check_reads(model: HookedModel, weights: EffectiveWeights, b_u: Float[Tensor, " d_vocab_out"]) -> None:
    """Refuse a bridge whose embeddings, queries, keys, values and logits do not follow from the weights that it shows.

    It computes them with the code of another library, which may scale, normalise or cap something in between.
    """
    device = weights.W_E.device
    tokens = (model.cfg.d_vocab // 2 + torch.arange(min(3, model.cfg.n_ctx), device=device)) % model.cfg.d_vocab
    streams = {layer: f"blocks.{layer}.hook_resid_pre" for layer in (0, *weights.layers)}
    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    points = {(layer, kind): f"blocks.{layer}.attn.hook_{kind}" for layer in weights.layers for kind in "qkv"}
    with without_hooks(model):
        logits, cache = model.run_with_cache(tokens[None], names_filter=[*streams.values(), last, *points.values()])
    seen = {name: cache[name][0].double() for name in {*streams.values(), last, *points.values()}}
    embedded = weights.W_E[tokens] if weights.W_pos is None else weights.W_E[tokens] + weights.W_pos[: len(tokens)]
    pairs = {"the stream before layer 0": (_centred(seen[streams[0]], weights.centred), embedded)}
    for (layer, kind), name in points.items():
        stream, at = seen[streams[layer]], weights.layers.index(layer)
        read = (stream / weights.sigma(stream)[:, None]) @ getattr(weights, f"W_{kind.upper()}")[at]
        read = (read + getattr(weights, f"b_{kind.upper()}")[at][:, None]).transpose(0, 1)
        given = seen[name].reshape(len(tokens), -1, read.shape[-1])
        pairs[f"{kind} of layer {layer}"] = (given.repeat_interleave(read.shape[1] // given.shape[1], 1), read)
    stream = seen[last]
    pairs["the logits"] = (logits[0].double(), (stream / weights.sigma(stream)[:, None]) @ weights.W_U + b_u)
    for what, (given, expected) in pairs.items():
        gap = float((given - expected).abs().max() / given.abs().max())
        if not gap < _GAP:
            raise InputError(
                f"{what} of the model must follow from its weights, up to sigma; this {type(model).__name__} gives "
                f"others, off by {gap:.2g} of the largest: load the weights as a HookedTransformer"
            )


@check_arguments
def check_indices(argument: str, given: Sequence[int] | None, size: int) -> list[int]:
    """The chosen indices, or all of them; raises InputError where an index is out of range, or none is given.

    >>> ms.analyses.check_indices("layers", None, 3)
    [0, 1, 2]
    """
    if given is None:
        return list(range(size))
    for index in given:
        in_range(f"an entry of {argument}", index, 0, size - 1)
    if len(given) == 0 or len(set(given)) < len(given):
        raise InputError(f"{argument} must name at least one index, and each once; got {list(given)}; None takes all")
    return [int(index) for index in given]


def _check_supported(cfg: Any) -> None:
    one_of("the model's normalization_type", cfg.normalization_type, _KINDS)
    way_out = "so its circuits are not products of weight matrices; take a model that does not"
    for name, words in _NOT_LINEAR.items():
        value = getattr(cfg, name, None)
        if value and value != -1:  # TransformerLens writes -1 for a cap that is off
            raise InputError(f"the model {words} ({name}={value!r}), {way_out}")
    if getattr(cfg, "final_rms", False) and cfg.normalization_type in ("LN", "LNPre"):
        raise InputError(f"the model normalises differently before the unembedding (final_rms=True), {way_out}")


def _attn_scale(cfg: Any, layer: int) -> float:
    own = cfg.attn_scale if cfg.attn_scale > 0 else math.sqrt(cfg.d_head)  # -1: not yet filled in
    scale = own if cfg.use_attn_scale else 1.0
    return scale * (layer + 1) if getattr(cfg, "scale_attn_by_inverse_layer_idx", False) else scale


def _reading(block: Any, kind: str | None, n_heads: int) -> dict[str, Tensor]:
    """Folded W_Q, W_K, W_V, b_Q, b_K, b_V of a layer; heads that share keys and values get the same ones."""
    result, attention, norm = {}, block.attn, getattr(block, "ln1", None)
    for letter in "QKV":
        weight = _finite(f"W_{letter}", getattr(attention, f"W_{letter}"))
        bias = _bias(f"b_{letter}", getattr(attention, f"b_{letter}"), weight)
        shared = n_heads // len(weight)
        weight, bias = (each.repeat_interleave(shared, 0) for each in (weight, bias))
        result[f"W_{letter}"], result[f"b_{letter}"] = _folded(weight, bias, norm, kind)
    return result


def _bias(name: str, bias: Tensor | None, weight: Float[Tensor, "*head d_model width"]) -> Float[Tensor, "*head width"]:
    """The bias; 0 where a bridged model has none."""
    return torch.zeros_like(weight[..., 0, :]) if bias is None else _finite(name, bias).view_as(weight[..., 0, :])


def _folded(
    weight: Float[Tensor, "*head d_model width"], bias: Float[Tensor, "*head width"], norm: Any, kind: str | None
) -> tuple[Float[Tensor, "*head d_model width"], Float[Tensor, "*head width"]]:
    if kind in ("LN", "RMS"):
        if kind == "LN":
            bias = bias + _finite("a normalisation's bias", norm.b) @ weight
        weight = _finite("a normalisation's gain", norm_gain(norm))[:, None] * weight
    return _centred(weight, kind in ("LN", "LNPre"), axis=-2), bias


def _centred(weight: Tensor, centred: bool, axis: int = -1) -> Tensor:
    """Without the mean over the residual stream."""
    return weight - weight.mean(axis, keepdim=True) if centred else weight


def _finite(name: str, weight: Tensor) -> Tensor:
    if not weight.isfinite().all():
        raise InputError(f"the model's {name} holds NaN or infinity; check its weights, or take an earlier checkpoint")
    return weight.detach().double()
