"""Weights as a page holds them: configuration and checkpoints of a model, every tensor once.

Tensors of compact checkpoints, and those that half precision holds exactly, are packed in half precision; others keep
single precision.
"""

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.dictionary_places import model_dictionaries
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import (
    HookedModel,
    attention_mix,
    has_linear_attention,
    masked_token,
    position_kind,
    reads_vectors,
)
from mnemoscope.explorer.record import PageDictionary
from mnemoscope.models.checkpoint import configuration_of

MAX_PARAMETERS = 1_000_000
"""Most parameters of one model; the forward pass of a larger one no longer feels immediate."""
MAX_BYTES = 64_000_000
"""Most bytes of a page; a browser opens larger ones, but takes its time."""
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "identity")
"""Activations that the page computes (`js/layers.js`)."""
_COMPUTED = """n_layers n_heads d_model d_head d_mlp n_ctx d_vocab d_vocab_out attn_only act_fn normalization_type eps
attention_dir use_attn_scale attn_scale positional_embedding_type rotary_dim rotary_base rotary_adjacent_pairs dtype"""
"""Fields of a configuration that the page's forward pass knows."""
_POSITIONS = ("standard", "relative", "rotary")
"""Kinds of positions that the page's forward pass knows."""
_IRRELEVANT = """init_mode init_weights initializer_range default_prepend_bos tokenizer_prepends_bos model_name
use_attn_result use_attn_in use_split_qkv_input use_hook_mlp_in use_hook_tokens original_architecture from_checkpoint
checkpoint_index checkpoint_label_type checkpoint_value trust_remote_code tie_word_embeddings"""
"""Fields of a configuration that change no logit, or that the names of the weights imply."""


@dataclass
class Packer:
    """Tensors of a page, in the order in which they were first packed."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _n_bytes: int = 0

    def pack(self, value: Tensor) -> int:
        """The number of a tensor; equal ones have one number. Too many bytes for one page are refused."""
        packed = pack_tensor(value)
        key = (tuple(packed["shape"]), packed["half"], packed["data"])
        if key not in self._numbers:
            self._n_bytes += len(packed["data"])
            check_size(self._n_bytes)
            self._numbers[key] = len(self.tensors)
            self.tensors.append(packed)
        return self._numbers[key]

    def checkpoint(self, model: HookedModel) -> dict[str, int]:
        """The numbers of a model's parameters by name; those of parts that it lacks are left out."""
        return {name: self.pack(value.detach()) for name, value in model.named_parameters()}

    def dictionaries(self, model: HookedModel) -> list[PageDictionary]:
        """The page's records of a model's dictionaries, by layer."""
        error = getattr(model, "has_errors", True)
        return [self._dictionary(found, error) for _, found in sorted(model_dictionaries(model).items())]

    def _dictionary(self, dictionary: Dictionary, error: bool) -> PageDictionary:
        centre, bias = dictionary.centre, dictionary.b_enc
        tensors = {
            "w_enc": dictionary.w_enc.T,
            "b_enc": bias if centre is None else bias.double() - dictionary.w_enc.double() @ centre.double(),
            "w_dec": dictionary.w_dec,
            "b_dec": dictionary.b_dec,
            "skip": None if dictionary.skip is None else dictionary.skip.T,
            "threshold": dictionary.threshold,
        }
        return PageDictionary(
            name=dictionary.name,
            layer=dictionary.layer,
            reads=dictionary.reads,
            writes=dictionary.writes,
            activation=dictionary.activation,
            k=dictionary.k,
            n=dictionary.n_features,
            error=error,
            tensors={name: self.pack(value) for name, value in tensors.items() if value is not None},
        )


def check_size(n_bytes: int) -> None:
    """Refuse what would make a page too large."""
    if n_bytes > MAX_BYTES:
        raise InputError(
            f"a page holds up to {MAX_BYTES / 1e6:.0f} MB; got more: take fewer runs, or fewer checkpoints of each "
            "(`checkpoints=8`, `--checkpoints 8`)"
        )


def checkpoint_bytes(model: HookedModel) -> int:
    """The most bytes that one checkpoint of a model takes on a page: single precision in base64."""
    return sum(4 * -(-4 * parameter.numel() // 3) for _, parameter in model.named_parameters())


def pack_tensor(value: Tensor) -> dict[str, Any]:
    """Shape, precision and little-endian bytes in base64, to be unpacked by `js/weights.js`."""
    single = value.detach().cpu().float()
    half = bool((single.half().float() == single).all())
    content = single.numpy().astype(np.dtype("<f2" if half else "<f4")).tobytes()
    return {"shape": list(value.shape), "half": half, "data": base64.b64encode(content).decode()}


def page_configuration(model: HookedModel) -> dict[str, Any]:
    """A model's configuration, as the page's forward pass needs it; refuses models that the page cannot run."""
    cfg: Any = model.cfg
    n_parameters = sum(parameter.numel() for _, parameter in model.named_parameters())
    own = [value for each in model_dictionaries(model).values() for value in each.tensors.values()]
    n_parameters += sum(value.numel() for value in own)
    if n_parameters > MAX_PARAMETERS:
        raise InputError(
            f"the explorer takes models of up to {MAX_PARAMETERS:,} parameters, with their dictionaries; got one of "
            f"{n_parameters:,}; `mnemoscope predict --out` and the analyses take larger ones"
        )
    points = getattr(model, "hook_dict", {}).values()
    if any(getattr(handle, "is_permanent", False) for point in points for handle in getattr(point, "fwd_hooks", ())):
        raise InputError(
            "the explorer knows the weights of a model, not what its hooks do; got one with permanent hooks: "
            "ms.explore(run) shows a run with its clamps and without"
        )
    if reads_vectors(model):
        raise InputError("the explorer edits tokens; got a model that reads vectors; `mnemoscope report` shows it")
    unknown = sorted(set(configuration_of(cfg)) - {*_COMPUTED.split(), *_IRRELEVANT.split()})
    positions = position_kind(model)
    unknown += [] if positions in _POSITIONS else [f"positions of the kind {positions}"]
    expected = set(_parameter_names(cfg, positions=positions))
    unknown += sorted({name for name, _ in model.named_parameters()} ^ expected)
    if unknown:
        raise InputError(f"the explorer's forward pass does not know {', '.join(unknown)}; got a model that has it")
    if cfg.d_mlp and not cfg.attn_only and cfg.act_fn not in ACTIVATIONS:
        raise InputError(f"the explorer knows the activations {', '.join(ACTIVATIONS)}; got {cfg.act_fn}")
    sizes = ("n_layers", "n_heads", "d_model", "d_head", "n_ctx", "d_vocab", "d_vocab_out")
    return {
        **{name: getattr(cfg, name) for name in sizes},
        "d_mlp": 0 if cfg.attn_only else cfg.d_mlp,
        "normalization": cfg.normalization_type,
        "eps": cfg.eps,
        "act_fn": cfg.act_fn,
        "causal": cfg.attention_dir == "causal",
        "linear": has_linear_attention(model),
        "mix": attention_mix(model),
        "masked": masked_token(model),
        "attn_scale": float(cfg.attn_scale) if cfg.use_attn_scale else 1.0,
        "rotary": _rotary(cfg) if positions == "rotary" else None,
    }


def _rotary(cfg: Any) -> dict[str, Any]:
    """Rotary positions: how many entries of queries and keys are turned, the base of periods, how they are paired."""
    return {
        "dim": cfg.rotary_dim or cfg.d_head,
        "base": float(cfg.rotary_base),
        "adjacent": bool(cfg.rotary_adjacent_pairs),
    }


def _parameter_names(cfg: Any, *, positions: str) -> list[str]:
    """Names of the parameters that the page computes with, for a configuration and its kind of positions."""
    norms = {"LN": ("w", "b"), "RMS": ("w",)}.get(cfg.normalization_type, ())
    names = ["embed.W_E", "unembed.W_U", "unembed.b_U", *(f"ln_final.{name}" for name in norms)]
    names += ["pos_embed.W_pos"] * (positions != "rotary")
    for layer in range(cfg.n_layers):
        block = f"blocks.{layer}"
        names += [f"{block}.attn.{kind}_{end}" for kind in "Wb" for end in "QKVO"]
        names += [f"{block}.attn.W_rel"] * (positions == "relative")
        names += [f"{block}.ln1.{name}" for name in norms]
        if not cfg.attn_only:
            names += [f"{block}.mlp.{kind}_{end}" for kind in "Wb" for end in ("in", "out")]
            names += [f"{block}.ln2.{name}" for name in norms]
    return names
