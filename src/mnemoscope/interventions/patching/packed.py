"""The forward pass of a `HookedTransformer` without hooks, from any point of the residual stream on.

A patch anywhere changes the residual stream at one *point* (before, in the middle of or after a block) from one
position on. What follows needs neither the layers before that point nor the positions before that one: those keep
the keys and values of the run that was changed, and of the last layer only the positions that are read matter.
Changes that start at the same position run together, as one batch, whatever point they enter at.

Points are numbered along the stream: 2 l before block l, 2 l + 1 between its attention and its MLP, 2 n_layers after
the last block. Equal to `HookedTransformer` to 1e-5 for the models that `unsupported` lets through (tested); it names
the first thing about a model that is not reproduced.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.edge import Through
from mnemoscope.core.layers import ACTIVATIONS, Mlp, Norm, Rotary, projected, softmax
from mnemoscope.core.protocols import HookedModel, has_linear_attention

_ACCEPTED: Mapping[str, tuple[object, ...]] = {
    "normalization_type": (None, "LN", "LNPre", "RMS", "RMSPre"),
    "final_rms": (False,),
    "positional_embedding_type": ("standard",),
    "attention_dir": ("causal",),
    "parallel_attn_mlp": (False,),
    "use_local_attn": (False,),
    "attn_scores_soft_cap": (-1.0, 0.0, None),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "n_devices": (1,),
    "dtype": (torch.float32, torch.float64),
    "n_key_value_heads": (None,),
    "gated_mlp": (False,),
}
_OF_LANGUAGE_MODELS: Mapping[str, tuple[object, ...]] = {
    "positional_embedding_type": ("standard", "rotary"),
    "parallel_attn_mlp": (False, True),
    "gated_mlp": (False, True),
    "ungroup_grouped_query_attention": (False,),
    "use_dynamic_ntk_rope": (False,),
}
"""Accepted instead by `continued`, with grouped heads and a final RMSNorm."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One block. Queries are divided by the scale of attention; keys and values lie side by side.

    The projections are named `d_model out`, with heads and their widths in one axis. `n_kv` heads have keys and values
    of their own; `parallel` blocks have attention and MLP read the same stream.
    """

    ln1: Norm
    w_q: Float[Tensor, "d_model all_heads"]
    b_q: Float[Tensor, " all_heads"]
    w_kv: Float[Tensor, "d_model keys_and_values"]
    b_kv: Float[Tensor, " keys_and_values"]
    w_o: Float[Tensor, "head_index d_head d_model"]
    b_o: Float[Tensor, " d_model"]
    scale: float
    mlp: Mlp | None
    n_kv: int
    rotary: Rotary | None = None
    parallel: bool = False

    @property
    def n_sharing(self) -> int:
        """How many heads share their keys and values with one another."""
        return len(self.w_o) // self.n_kv

    def turned(
        self, x: Float[Tensor, "*rows pos d_head"], positions: Int[Tensor, " pos"] | slice
    ) -> Float[Tensor, "*rows pos d_head"]:
        """Queries or keys at these positions as scores are formed of them."""
        return x if self.rotary is None else self.rotary(x, positions)

    def into(self, through: Through) -> tuple[Float[Tensor, "d_model all_heads"], Float[Tensor, " all_heads"]]:
        """Weight and bias of the queries, keys or values."""
        if through == "q":
            return self.w_q, self.b_q
        width = self.w_kv.shape[1] // 2
        half = slice(width) if through == "k" else slice(width, None)
        return self.w_kv[:, half], self.b_kv[half]


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The weights of a model from its first block on."""

    layers: tuple[Layer, ...]
    ln_final: Norm
    w_u: Float[Tensor, "d_model d_vocab"]
    b_u: Float[Tensor, " d_vocab"]

    @property
    def has_mlp(self) -> bool:
        """Whether blocks have an MLP after attention."""
        return self.layers[0].mlp is not None

    @property
    def has_middle(self) -> bool:
        """Whether there is a stream between the attention and the MLP of a block."""
        return self.has_mlp and not self.layers[0].parallel

    @property
    def is_gated(self) -> bool:
        """Whether MLPs are gated."""
        return any(layer.mlp is not None and layer.mlp.w_gate is not None for layer in self.layers)

    @property
    def copied_bytes(self) -> int:
        """Memory of the weights that are laid out anew; the others are the model's own."""
        return sum(w.nbytes for layer in self.layers for w in (layer.w_q, layer.b_q, layer.w_kv, layer.b_kv))


def unsupported(model: HookedModel, *, plain: bool = True) -> str | None:
    """Why a model has to be run through its hooks; None if its forward pass is reproduced.

    Args:
        model: Any hooked model.
        plain: Whether whoever asks reproduces plain models alone; `continued` also takes rotary positions, grouped
            heads, gated MLPs and blocks whose parts are parallel.
    """
    if (reason := unlike(model, plain=plain)) is not None:
        return reason
    modules: Any = model
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules.modules()):
        return "it carries hooks"
    return None


def unlike(model: HookedModel, *, plain: bool = True) -> str | None:
    """As `unsupported`, whatever hooks are on the model."""
    cfg = model.cfg
    accepted_by_name = dict(_ACCEPTED)
    if not plain:
        accepted_by_name |= _OF_LANGUAGE_MODELS
        del accepted_by_name["n_key_value_heads"]
        if str(cfg.normalization_type).startswith("RMS"):  # then the final one is an RMSNorm in any case
            del accepted_by_name["final_rms"]
    for name, accepted in accepted_by_name.items():
        if getattr(cfg, name, accepted[0]) not in accepted:
            return f"{name} is {getattr(cfg, name)}"
    if has_linear_attention(model):
        return "its attention has no softmax"
    if not cfg.attn_only and cfg.act_fn not in ACTIVATIONS:
        return f"act_fn is {cfg.act_fn}"
    if getattr(getattr(model, "tokenizer", None), "padding_side", None) == "left":
        return "its tokenizer pads on the left"
    if (names := {name for name, _ in model.named_parameters()}) != _parameters(cfg):
        return f"its parameters are not those of a plain HookedTransformer: {min(names ^ _parameters(cfg))}"
    return None


def _parameters(cfg: Any) -> set[str]:
    ends = {"LN": ("w", "b"), "RMS": ("w",)}.get(cfg.normalization_type, ())
    norms = ("ln1",) if cfg.attn_only else ("ln1", "ln2")
    gate = ("mlp.W_gate",) if getattr(cfg, "gated_mlp", False) else ()
    mlp = () if cfg.attn_only else ("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out", *gate)
    attention = tuple(f"attn.{_attention_name(cfg, f'{weight}_{kind}')}" for kind in "QKVO" for weight in "Wb")
    positions = ("pos_embed.W_pos",) if getattr(cfg, "positional_embedding_type", "standard") == "standard" else ()
    block = (*attention, *mlp, *(f"{norm}.{end}" for norm in norms for end in ends))
    return {
        *(f"blocks.{layer}.{name}" for layer in range(cfg.n_layers) for name in block),
        *("embed.W_E", *positions, "unembed.W_U", "unembed.b_U"),
        *(f"ln_final.{end}" for end in ends),
    }


def _attention_name(cfg: Any, name: str) -> str:
    """What a weight of attention is called; heads that share keys and values keep them once, under another name."""
    return f"_{name}" if getattr(cfg, "n_key_value_heads", None) and name[-1] in "KV" else name


def packed(model: HookedModel, layers: Iterable[int] | None = None) -> Packed:
    """The weights of a model for which `unsupported` is None; to be used while the model stays as it is.

    Args:
        model: The model.
        layers: Those that are packed, which copies some of their weights; none: all.
    """
    cfg = model.cfg
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def norm(name: str) -> Norm:
        ends = {end: weights.get(f"{name}.{end}") for end in "wb"}
        return Norm(kind=cfg.normalization_type, eps=cfg.eps, **ends)

    def mlp(block: str) -> Mlp:
        assert cfg.act_fn is not None
        ends = {end.lower(): weights[f"{block}.mlp.{end}"] for end in ("W_in", "b_in", "W_out", "b_out")}
        gate = weights.get(f"{block}.mlp.W_gate")
        return Mlp(ln2=norm(f"{block}.ln2"), activation=ACTIVATIONS[cfg.act_fn], w_gate=gate, **ends)

    def layer(index: int) -> Layer:
        name = f"blocks.{index}"
        ends = [f"{w}_{k}" for w in "Wb" for k in "QKVO"]
        attn = {end: weights[f"{name}.attn.{_attention_name(cfg, end)}"] for end in ends}
        # d_model comes first, so that one product gives all heads
        flat = {kind: attn[f"W_{kind}"].transpose(0, 1).flatten(1) for kind in "QKV"}
        scale, rotary = float(model.blocks[index].attn.attn_scale), None
        if getattr(cfg, "positional_embedding_type", "standard") == "rotary":
            tables: Any = model.blocks[index].attn
            rotary = Rotary(
                cos=tables.rotary_cos, sin=tables.rotary_sin, adjacent=getattr(cfg, "rotary_adjacent_pairs", True)
            )
        return Layer(
            ln1=norm(f"{name}.ln1"),
            w_q=flat["Q"] / scale,
            b_q=attn["b_Q"].flatten() / scale,
            w_kv=torch.cat((flat["K"], flat["V"]), 1),
            b_kv=torch.cat((attn["b_K"].flatten(), attn["b_V"].flatten())),
            w_o=attn["W_O"],
            b_o=attn["b_O"],
            scale=scale,
            mlp=None if cfg.attn_only else mlp(name),
            n_kv=len(attn["W_K"]),
            rotary=rotary,
            parallel=bool(getattr(cfg, "parallel_attn_mlp", False)),
        )

    return Packed(
        layers=tuple(layer(index) for index in (range(cfg.n_layers) if layers is None else layers)),
        ln_final=norm("ln_final"),
        w_u=weights["unembed.W_U"],
        b_u=weights["unembed.b_U"],
    )


@dataclass(frozen=True, kw_only=True)
class Past:
    """Keys, turned where positions are rotary, and values of every layer in the run that is changed, up to the first
    changed position and beyond; those that heads share are there once.
    """

    keys: Sequence[Float[Tensor, "prompt kv_head_index pos d_head"]]
    values: Sequence[Float[Tensor, "prompt kv_head_index pos d_head"]]


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
        if added is not None and layer.parallel and layer.mlp is not None:
            added += layer.mlp(changed if queries is None else changed[:, :, queries])
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
    return projected(weights.ln_final(residual), weights.w_u, weights.b_u)


def _add_mlp(layer: Layer, residual: Float[Tensor, "cell prompt some d_model"]) -> None:
    """Change the stream in place as the MLP of a block does, unless it already acted beside attention."""
    if layer.mlp is not None and not layer.parallel and len(residual):
        residual += layer.mlp(residual)


def _attention(
    layer: Layer,
    residual: Float[Tensor, "cell prompt suffix d_model"],
    keys: Float[Tensor, "prompt kv_head_index pos d_head"],
    values: Float[Tensor, "prompt kv_head_index pos d_head"],
    queries: Int[Tensor, " read"] | None,
) -> Float[Tensor, "cell prompt query d_model"]:
    """What attention adds, at all positions of the suffix or at some of them."""
    normed, start = layer.ln1(residual), keys.shape[2] - residual.shape[2]
    own = projected(normed, layer.w_kv, layer.b_kv)
    split = "cell prompt pos (both head d_head) -> both cell prompt head pos d_head"
    k, v = rearrange(own, split, both=2, head=layer.n_kv)
    k = layer.turned(k, slice(start, start + residual.shape[2]))
    keys, values = (prolonged(past, new).flatten(0, 2) for past, new in ((keys, k), (values, v)))
    q = projected(normed if queries is None else normed[:, :, queries], layer.w_q, layer.b_q)
    q = rearrange(q, "cell prompt pos (head d_head) -> cell prompt head pos d_head", head=len(layer.w_o))
    q = layer.turned(q, slice(start, start + q.shape[-2]) if queries is None else queries + start)
    # heads that share keys stand one after the other, like more queries of one head
    n_sharing, n_query = layer.n_sharing, q.shape[-2]
    q = rearrange(q, "cell prompt (kv n) pos d_head -> (cell prompt kv) (n pos) d_head", n=n_sharing)
    future = _future(residual.shape[2], keys, queries).repeat(n_sharing, 1)
    scores = torch.baddbmm(future, q, keys.transpose(1, 2))
    z = torch.bmm(softmax(scores), values).unflatten(0, (*residual.shape[:2], layer.n_kv))
    z = rearrange(z, "cell prompt kv (n pos) d_head -> cell prompt pos (kv n d_head)", n=n_sharing, pos=n_query)
    return projected(z, layer.w_o.flatten(0, 1), layer.b_o)


def prolonged(
    past: Float[Tensor, "prompt head_index pos d_head"],
    own: Float[Tensor, "cell prompt head_index suffix d_head"],
) -> Float[Tensor, "cell prompt head_index pos d_head"]:
    """Each cell's own keys (or values) after those that it shares with the run that was changed."""
    before = past[..., : past.shape[-2] - own.shape[-2], :]
    return torch.cat((before.expand(len(own), -1, -1, -1, -1), own), -2)


def _future(
    n_suffix: int, keys: Float[Tensor, "row pos d_head"], queries: Int[Tensor, " read"] | None
) -> Float[Tensor, "query pos"]:
    """Minus infinity where a key comes after its query."""
    n_pos = keys.shape[1]
    mask = keys.new_full((n_suffix, n_pos), -math.inf).triu(n_pos - n_suffix + 1)
    return mask if queries is None else mask[queries]
