"""The MLP of a layer, checked, and its keys as they read the residual stream before ln2.

A key k that reads LN(x) = g (x - mean x) / s + b reads (k g - mean(k g)) . x / s + k . b from x. The scale s depends
on x and is left out.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel

_NORMALISATIONS = (None, "LN", "LNPre", "RMS", "RMSPre")


def mlp_block(model: HookedModel, layer: int) -> Any:
    """The block of a layer whose MLP has one key and one value a neuron.

    Raises:
        InputError: The layer does not exist; its MLP is missing, gated, of several experts, beside the attention or
            normalised after it; or a weight of the model holds NaN.
    """
    cfg = model.cfg
    in_range("layer", layer, 0, cfg.n_layers - 1)
    if cfg.attn_only:
        raise InputError("the model has no MLP (attn_only), so it has no neurons; take a model with one")
    if getattr(cfg, "gated_mlp", False):
        raise InputError("the model's MLP is gated: a neuron has two keys; take a model whose MLP is W_in and W_out")
    if getattr(cfg, "num_experts", None):
        raise InputError("the model's MLP is a mixture of experts; take a model whose MLP is W_in and W_out")
    if getattr(cfg, "parallel_attn_mlp", False):
        raise InputError("the model's MLP stands beside the attention; take a model whose MLP comes after it")
    if getattr(cfg, "use_normalization_before_and_after", False):
        raise InputError("the model normalises what its MLP writes; take a model that adds it as it is")
    one_of("the model's normalization_type", cfg.normalization_type, _NORMALISATIONS)
    for name, value in model.named_parameters():
        if value.isnan().any():
            raise InputError(f"the weight {name} of the model holds NaN; take an earlier checkpoint")
    return model.blocks[layer]


def keys_before_norm(block: Any, kind: str | None) -> tuple[Float[Tensor, "neuron d_model"], Float[Tensor, " neuron"]]:
    """The columns of W_in as they read the input of ln2, and what they get from biases there; float64.

    Args:
        block: From `neurons.block`.
        kind: `cfg.normalization_type`.
    """
    key, bias = block.mlp.W_in.double().T, block.mlp.b_in.double()
    if kind == "LN":
        bias = bias + key @ block.ln2.b.double()
    if kind in ("LN", "RMS"):
        key = key * block.ln2.w.double()
    return (key - key.mean(-1, keepdim=True) if kind in ("LN", "LNPre") else key), bias
