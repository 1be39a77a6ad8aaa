"""Builds the engine's transformer from a hooked model or a specification, or says why there is none.

The parameters are the model's own, except that queries, keys and values are laid out as one matrix a layer. The
configuration and the names of the parameters say whether the engine represents a model. Then a few tokens test it:
logits must agree with the model's to 1e-4 of their size, in bfloat16 to a few of its roundings.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mnemoscope.core.dictionary_places import dictionary_points, model_dictionaries
from mnemoscope.core.protocols import HookedModel, masked_token, reads_vectors, without_hooks
from mnemoscope.core.specification import ModelSpec
from mnemoscope.engine.block import Attention, Block, Rotary, waves
from mnemoscope.engine.changes import BEFORE_BLOCKS, IN_BLOCK
from mnemoscope.engine.lookup import MAX_CELLS
from mnemoscope.engine.pointwise import ACTIVATIONS, Mlp, Norm
from mnemoscope.engine.transformer import Transformer

Parameters = Mapping[str, Tensor]
_SPEC_EPS = 1e-5
_TOLERANCE = 1e-4
_ROUNDINGS = 16
"""Roundings of bfloat16 by which logits may differ, whose eight bits do not reach that tolerance."""
_N_TRIED = 12
"""Tokens on which a model is tried."""
MAX_ROTARY = 2**12
"""Longest input of a specification with rotary positions."""
_KEPT_FROM = 2**22
"""Bytes of laid out weights from which they are kept with the model; laying out fewer takes less time than checking."""

_ACCEPTED: Mapping[str, tuple[object, ...]] = {
    "normalization_type": (None, "LN", "LNPre", "RMS", "RMSPre"),
    "positional_embedding_type": ("standard", "rotary"),
    "attention_dir": ("causal", "bidirectional"),
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "use_qk_norm": (False,),
    "n_devices": (1,),
    "dtype": (torch.float32, torch.float64, torch.bfloat16),
    "ungroup_grouped_query_attention": (False,),
    "use_dynamic_ntk_rope": (False,),
}
"""Values of a configuration's fields that the engine computes; fields that are not listed name sizes or hooks."""


def transformer_from_spec(params: Parameters, spec: ModelSpec, *, fused: bool = True) -> Transformer:
    """The transformer of a specification, a pure function of its parameters: gradients and `vmap` apply to it.

    The parameters go by `HookedTransformer`'s names. `fused` allows kernels that have no rule for `vmap`.
    """
    kind = None if spec.normalization == "none" else spec.normalization
    weight = params["embed.W_E"]
    turned = spec.position_kind == "rotary"
    rotary = rotary_positions(spec.head_width, weight.dtype, weight.device) if turned else None

    def block(index: int) -> Block:
        attention = {
            "relative": params.get(f"blocks.{index}.attn.W_rel"),
            "scale": spec.head_width**0.5,
            "causal": spec.attention_dir == "causal",
            "linear": not spec.softmax,
            "mix": spec.attention_mix,
            "masked": None if spec.masked is None else spec.masked % len(params["embed.W_E"]),
            "rotary": rotary,
            "fused": fused,
        }
        return Block(
            ln1=_norm(params, f"blocks.{index}.ln1", kind, _SPEC_EPS),
            attn=_attention(params, index, attention) if spec.attention else None,
            ln2=_norm(params, f"blocks.{index}.ln2", kind, _SPEC_EPS),
            mlp=_mlp(params, index, spec.act_fn) if spec.mlp and index >= spec.first_mlp else None,
        )

    return Transformer(
        w_e=params["embed.W_E"],
        w_pos=None if turned else params["pos_embed.W_pos"],
        blocks=tuple(block(index) for index in range(spec.n_layers)),
        ln_final=_norm(params, "ln_final", kind, _SPEC_EPS),
        w_u=params["unembed.W_U"],
        b_u=params["unembed.b_U"],
        silent=None if spec.positions else spec.silent,
    )


@lru_cache
def rotary_positions(width: int, dtype: torch.dtype, device: torch.device) -> Rotary:
    """The rotary positions of a specification, for heads of that width: halves are paired, the base is 10,000."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    sin, cos = waves(10_000 ** (torch.arange(width // 2, dtype=exact) / (width / 2)), MAX_ROTARY)
    return Rotary(cos=cos.to(device, dtype), sin=sin.to(device, dtype), adjacent=False)


def read_transformer(model: HookedModel) -> Transformer | str:
    """The engine's transformer of a model, or in words why there is none. Hooks on the model are ignored.

    Use it only as long as the model's weights stay the same: some of them are copies.
    """
    if not isinstance(model, nn.Module):
        return "it is no torch module"
    params = dict(model.named_parameters())  # once: this comes before every forward pass, however short
    if (reason := _why_unsupported(model, params)) is not None:
        return reason
    found = _cached_transformer(model, params)
    return found if _is_checked(model, params, found) else "its forward pass is a different one"


def resumable_transformer(model: HookedModel, n_pos: int, *, everywhere: bool = False) -> Transformer | str:
    """A transformer that can resume runs on prompts of `n_pos` positions, or in words why there is none.

    Runs that resume `everywhere`, at all positions, need no causal attention.
    """
    hooked, weights = hooked_points(model), read_transformer(model)
    if isinstance(weights, str):
        return weights
    if hooked != frozenset():
        return "it carries hooks"
    for block in weights.blocks:
        if block.attn is None or not (everywhere or block.attn.causal):
            return "its attention is not causal: a change acts on earlier positions too"
        if block.attn.masked is not None:
            return "its attention leaves out a token, and a resumed run has no tokens"
        if block.attn.rotary is not None and len(block.attn.rotary.cos) < n_pos:
            return "its table of rotary positions is shorter than the prompts"
    return weights


def transformer_with_points(model: HookedModel, points: Collection[str]) -> Transformer | None:
    """The engine's transformer of a model; None if there is none, or if it lacks one of the hook points."""
    if points:
        blocks = {f"blocks.{index}.{name}" for index in range(model.cfg.n_layers) for name in IN_BLOCK}
        of_dictionaries = [dictionary_points(dictionary) for dictionary in model_dictionaries(model).values()]
        blocks |= {name for both in of_dictionaries for names in both for name in names}
        if not {*points} <= {*BEFORE_BLOCKS, *blocks} & {*model.hook_dict}:
            return None
    return None if isinstance(weights := read_transformer(model), str) else weights


def transformer_without_hooks(model: HookedModel, points: Collection[str]) -> Transformer | None:
    """As `with_points`, for a model that carries no hooks; None if it carries some."""
    return transformer_with_points(model, points) if hooked_points(model) == frozenset() else None


def transformer_with_parameters(model: HookedModel) -> Callable[[Parameters], Transformer] | None:
    """A function from parameters to the transformer that a model would be with them, with gradients through it.

    None if the model carries hooks, or the engine does not represent it.
    """
    if hooked_points(model) != frozenset() or isinstance(read_transformer(model), str):
        return None
    return partial(_build_transformer, model)


def hooked_points(model: HookedModel) -> frozenset[str] | None:
    """The hook points that carry forward hooks; None if the model has hooks elsewhere, or backward hooks."""
    if not isinstance(model, nn.Module):
        return None
    points: set[str] = set()
    for name, module in model.named_modules():
        if module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return None
        if module._forward_hooks:
            if name not in model.hook_dict:
                return None
            points.add(name)
    return frozenset(points)


def _why_unsupported(model: HookedModel, params: Parameters) -> str | None:
    """Say why the engine does not represent a model, from configuration and parameter names; None if it does."""
    cfg: Any = model.cfg
    if not getattr(model, "has_errors", True):
        return "its dictionaries leave out their errors"
    for name, accepted in _ACCEPTED.items():
        if getattr(cfg, name, accepted[0]) not in accepted:
            return f"{name} is {getattr(cfg, name)}"
    if getattr(cfg, "final_rms", False) and not str(cfg.normalization_type).startswith("RMS"):
        return "final_rms is True"
    if not cfg.attn_only and cfg.act_fn not in ACTIVATIONS:
        return f"act_fn is {cfg.act_fn}"
    if getattr(getattr(model, "tokenizer", None), "padding_side", None) == "left":
        return "its tokenizer pads on the left"
    expected = _parameter_names(
        cfg.n_layers,
        cfg.normalization_type,
        has_mlp=not cfg.attn_only,
        gated=bool(getattr(cfg, "gated_mlp", False)),
        shares_keys=bool(getattr(cfg, "n_key_value_heads", None)),
        has_positions=getattr(cfg, "positional_embedding_type", "standard") == "standard",
        is_relative="blocks.0.attn.W_rel" in params,
    )
    if params.keys() != expected:
        return f"its parameters are not those of a plain HookedTransformer: {min(params.keys() ^ expected)}"
    return None


@lru_cache
def _parameter_names(
    n_layers: int,
    normalization: str | None,
    *,
    has_mlp: bool,
    gated: bool,
    shares_keys: bool,
    has_positions: bool,
    is_relative: bool,
) -> frozenset[str]:
    ends = {"LN": ("w", "b"), "RMS": ("w",)}.get(normalization or "", ())
    mlp = [f"mlp.{name}" for name in ("W_in", "b_in", "W_out", "b_out", *(["W_gate"] if gated else []))]
    shared = "_" if shares_keys else ""
    attention = [f"attn.{shared if kind in 'KV' else ''}{weight}_{kind}" for kind in "QKVO" for weight in "Wb"]
    norms = [f"{norm}.{end}" for norm in ("ln1", "ln2")[: 2 if has_mlp else 1] for end in ends]
    in_block = [*attention, *(mlp if has_mlp else []), *norms, *(["attn.W_rel"] if is_relative else [])]
    names = [f"blocks.{layer}.{name}" for layer in range(n_layers) for name in in_block]
    names += ["embed.W_E", "unembed.W_U", "unembed.b_U", *(f"ln_final.{end}" for end in ends)]
    return frozenset([*names, "pos_embed.W_pos"] if has_positions else names)


_KEPT: WeakKeyDictionary[Any, tuple[object, Transformer]] = WeakKeyDictionary()


def _cached_transformer(model: HookedModel, params: Parameters) -> Transformer:
    """The model's weights as a transformer. Large copies are kept with the model until its weights change."""
    params = {name: value.detach() for name, value in params.items()}
    copied = [value for name, value in params.items() if name[-1] in "QKV"]
    if sum(value.nbytes for value in copied) < _KEPT_FROM:
        return _build_transformer(model, params)
    state = (parameter_key(params), [_checksum(value) for value in copied])
    before = _KEPT.get(model)
    if before is None or before[0] != state:
        before = _KEPT[model] = (state, _build_transformer(model, params))
    return before[1]


def parameter_key(params: Parameters) -> list[tuple[str, int, int]]:
    """A key that changes when a parameter is replaced, or changed in place other than through `.data`."""
    return [(name, value.data_ptr(), value._version) for name, value in params.items()]


def _checksum(weight: Tensor) -> float:
    """A number that depends on the entries of a weight and their order: it detects changes through `.data`."""
    rows = weight.reshape(-1, weight.shape[-1])
    across, down = (torch.linspace(1, 2, n, dtype=rows.dtype, device=rows.device) for n in rows.shape[::-1])
    return float(rows @ across @ down)


def _build_transformer(model: HookedModel, params: Parameters) -> Transformer:
    cfg: Any = model.cfg
    return Transformer(
        w_e=params["embed.W_E"],
        w_pos=params.get("pos_embed.W_pos"),
        blocks=tuple(_block(model, index, params) for index in range(cfg.n_layers)),
        ln_final=_norm(params, "ln_final", cfg.normalization_type, cfg.eps),
        w_u=params["unembed.W_U"],
        b_u=params["unembed.b_U"],
        logit_cap=_cap(cfg, "output_logits_soft_cap"),
        dictionaries=tuple(model_dictionaries(model).values()),
    )


def _block(model: HookedModel, index: int, params: Parameters) -> Block:
    cfg: Any = model.cfg
    module: Any = model.blocks[index].attn
    rotary = None
    if getattr(cfg, "positional_embedding_type", "standard") == "rotary":
        adjacent = getattr(cfg, "rotary_adjacent_pairs", True)
        rotary = Rotary(cos=module.rotary_cos, sin=module.rotary_sin, adjacent=adjacent)
    causal = cfg.attention_dir == "causal"
    is_local = causal and getattr(cfg, "use_local_attn", False) and cfg.attn_types[index] == "local"
    is_linear = bool(getattr(module, "linear", False))
    attention = {
        "scale": 1.0 if is_linear else float(module.attn_scale),
        "causal": causal,
        "linear": is_linear,
        "mix": getattr(module, "mix", 1.0),
        "masked": masked_token(model),
        "relative": params.get(f"blocks.{index}.attn.W_rel"),
        "rotary": rotary,
        "window": cfg.window_size if is_local else None,
        "soft_cap": _cap(cfg, "attn_scores_soft_cap"),
    }
    return Block(
        ln1=_norm(params, f"blocks.{index}.ln1", cfg.normalization_type, cfg.eps),
        attn=_attention(params, index, attention),
        ln2=_norm(params, f"blocks.{index}.ln2", cfg.normalization_type, cfg.eps),
        mlp=None if cfg.attn_only else _mlp(params, index, cfg.act_fn),
        parallel=bool(getattr(cfg, "parallel_attn_mlp", False)),
    )


def _norm(params: Parameters, name: str, kind: str | None, eps: float) -> Norm:
    return Norm(kind=kind, eps=eps, w=params.get(f"{name}.w"), b=params.get(f"{name}.b"))


def _attention(params: Parameters, index: int, options: Mapping[str, Any]) -> Attention:
    name = f"blocks.{index}.attn"
    shared = "_" if f"{name}._W_K" in params else ""  # heads that share keys and values keep them once
    kinds = ("Q", f"{shared}K", f"{shared}V")
    weights, biases = ([params[f"{name}.{kind[:-1]}{end}_{kind[-1]}"] for kind in kinds] for end in "Wb")
    return Attention(
        w_qkv=torch.cat([weight.transpose(1, 2).flatten(0, 1) for weight in weights]),
        b_qkv=torch.cat([bias.flatten() for bias in biases]),
        w_o=params[f"{name}.W_O"],
        b_o=params[f"{name}.b_O"],
        n_kv=len(weights[1]),
        **options,
    )


def _mlp(params: Parameters, index: int, act_fn: str) -> Mlp:
    name = f"blocks.{index}.mlp"
    ends = {end.lower(): params[f"{name}.{end}"] for end in ("W_in", "b_in", "W_out", "b_out")}
    return Mlp(activation=ACTIVATIONS[act_fn], w_gate=params.get(f"{name}.W_gate"), **ends)


def _cap(cfg: Any, name: str) -> float | None:
    cap = getattr(cfg, name, None)
    return cap if cap is not None and cap > 0 else None


_TRIED: WeakKeyDictionary[Any, tuple[object, bool]] = WeakKeyDictionary()


def _is_checked(model: HookedModel, params: Parameters, found: Transformer) -> bool:
    """Check that the engine gives a model's own logits on a few tokens, once for the weights that it has.

    Hooks at hook points are removed for the test. A model with hooks elsewhere cannot be tested: its class decides.
    """
    modules: Any = model
    parts = [*modules.modules()]
    if any("forward" in vars(part) for part in parts):
        return False
    state = (parameter_key(params), [type(part) for part in parts])
    before = _TRIED.get(model)
    if before is not None and before[0] == state:
        return before[1]
    others = {*parts} - {*model.hook_dict.values()}
    if any(part._forward_hooks or part._forward_pre_hooks for part in others):
        return type(model).__name__ == "HookedTransformer"
    result = _reproduces(model, found)
    _TRIED[model] = (state, result)
    return result


@torch.no_grad()
def _reproduces(model: HookedModel, found: Transformer) -> bool:
    cfg, device = model.cfg, found.b_u.device
    n = min(_N_TRIED, cfg.n_ctx)
    if reads_vectors(model):
        inputs: Float[Tensor, "1 pos d_input"] | Tensor = torch.linspace(-1, 1, n * cfg.d_vocab).view(1, n, -1)
        inputs = inputs.to(found.w_e)
    else:
        # With few tokens, as many rows as let the tables of the first layer take part.
        n_rows = cfg.d_vocab if cfg.d_vocab * n <= MAX_CELLS else 1
        inputs = torch.linspace(0, cfg.d_vocab - 1, n, device=device).long().repeat(n_rows, 1)
    own = found(inputs)
    with without_hooks(model):
        given = model(inputs)
    scale = max(1.0, float(given.nan_to_num(posinf=0, neginf=0).abs().max()))
    tolerance = max(_TOLERANCE, _ROUNDINGS * torch.finfo(own.dtype).eps if own.dtype == torch.bfloat16 else 0)
    return bool(torch.allclose(own, given, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
