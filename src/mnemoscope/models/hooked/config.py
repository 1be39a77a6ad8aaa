"""Configuration of a hooked transformer: the fields of TransformerLens 3.9's that are computed here.

Names, order and defaults are those of 3.9, so that 3.9 and this package read and write the same checkpoints.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.errors import InputError, one_of

NORMALISATIONS = ("LN", "LNPre", "RMS", "RMSPre", None)
POSITIONS = ("standard", "rotary", "shortformer", "alibi")
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "identity": lambda x: x,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation function of that name, also one of TransformerLens's; raises InputError for any other name."""
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

    one_of("act_fn", name, sorted({*SUPPORTED_ACTIVATIONS, *_ACTIVATIONS}))
    return SUPPORTED_ACTIVATIONS[name]


@dataclass
class HookedTransformerConfig:
    """Fields as in TransformerLens; fields that are left out are filled in as there."""

    d_model: int
    d_head: int
    n_layers: int
    n_ctx: int
    n_heads: int = -1
    d_mlp: int | None = None
    d_vocab: int = -1
    device: str | None = None
    use_attn_result: bool = False
    use_split_qkv_input: bool = False
    default_prepend_bos: bool = True
    positional_embedding_type: str = "standard"
    n_key_value_heads: int | None = None
    attn_only: bool = False
    gated_mlp: bool = False
    eps: float = 1e-5
    act_fn: str | None = "relu"
    normalization_type: str | None = "LN"
    final_rms: bool = False
    dtype: torch.dtype = torch.float32
    model_name: str = "custom"
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    use_hook_mlp_in: bool = False
    use_attn_in: bool = False
    use_qk_norm: bool = False
    clip_qkv: float | None = None
    use_local_attn: bool = False
    ungroup_grouped_query_attention: bool = False
    original_architecture: str | None = None
    tokenizer_name: str | None = None
    window_size: int | None = None
    attn_types: list[str] | None = None
    init_mode: str = "gpt2"
    n_devices: int = 1
    attention_dir: str = "causal"
    seed: int | None = None
    initializer_range: float = -1.0
    init_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    d_vocab_out: int = -1
    parallel_attn_mlp: bool = False
    rotary_dim: int | None = None
    use_hook_tokens: bool = False
    tokenizer_prepends_bos: bool | None = None
    post_embedding_ln: bool = False
    rotary_base: float | int = 10000
    rotary_adjacent_pairs: bool = False
    use_normalization_before_and_after: bool = False
    attn_scores_soft_cap: float = -1.0
    output_logits_soft_cap: float = -1.0
    use_NTK_by_parts_rope: bool = False  # noqa: N815
    NTK_by_parts_low_freq_factor: float = 1.0
    NTK_by_parts_high_freq_factor: float = 4.0
    NTK_by_parts_factor: float = 8.0
    NTK_original_ctx_len: int = 8192

    def __post_init__(self) -> None:
        """Refuse values that the model does not compute, and fill in fields that were left out."""
        one_of("normalization_type", self.normalization_type, NORMALISATIONS)
        one_of("positional_embedding_type", self.positional_embedding_type, POSITIONS)
        one_of("init_mode", self.init_mode, ("gpt2",))
        if not self.attn_only:
            activation(self.act_fn or "")
        if self.gated_mlp and self.is_layer_norm_activation():
            raise InputError(f"gated_mlp with act_fn {self.act_fn} is not computed; give one that does not end in _ln")
        if self.use_local_attn and (self.window_size is None or self.attn_types is None):
            raise InputError("use_local_attn needs window_size and attn_types; got a configuration without one of them")
        if self.n_heads == -1:
            self.n_heads = self.d_model // self.d_head
        if self.device is None:
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.d_mlp is None:
            self.d_mlp = 4 * self.d_model
        if self.initializer_range < 0:
            self.initializer_range = 0.8 / math.sqrt(self.d_model)
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab
        if self.positional_embedding_type == "rotary" and self.rotary_dim is None:
            self.rotary_dim = self.d_head
        if self.use_attn_scale and self.attn_scale == -1.0:
            self.attn_scale = math.sqrt(self.d_head)

    @classmethod
    def from_dict(cls, arguments: Mapping[str, Any]) -> "HookedTransformerConfig":
        """The configuration of these fields; raises InputError for a field or value that is not computed."""
        unknown = sorted(set(arguments) - {field.name for field in fields(cls)})
        if unknown:
            raise InputError(
                f"a configuration has {', '.join(unknown)}, which is not computed here with TransformerLens 4; load "
                'it with transformer-lens 3.9 (pip install "transformer-lens<4")'
            )
        return cls(**arguments)

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return dict(vars(self))

    def is_layer_norm_activation(self) -> bool:
        """True if the activations of an MLP are normalised, as after SoLU."""
        return self.act_fn is not None and self.act_fn.endswith("_ln")
