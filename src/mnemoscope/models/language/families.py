"""Configuration and weights of the commonest language models, for releases of TransformerLens that convert none.

The families are GPT-2, GPT-NeoX (Pythia), Llama (SmolLM2 too), Mistral and Qwen2, with sliding windows. Both results
equal TransformerLens 3.9's (tested against it where it is installed). They also cover what 3.9 reads wrongly or not at
all: biases of attention, heads of any width, linear rotary positions, and windows of some layers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor

StateDict = dict[str, Tensor]


def convert_configuration(theirs: Any) -> dict[str, Any]:
    """Arguments of a `HookedTransformerConfig` for a model of the transformers library.

    Raises NotImplementedError for another family, or for a part that is not computed.
    """
    name = type(theirs).__name__
    if name not in _FAMILIES:
        raise NotImplementedError(f"with TransformerLens 4 these are converted: {', '.join(_FAMILIES)}")
    return {"original_architecture": name, "init_weights": False, **_FAMILIES[name][0](theirs.config)}


def convert_weights(theirs: Any, cfg: Any) -> StateDict:
    """Weights of the model under `HookedTransformer`'s names; biases that it lacks are left out."""
    return _FAMILIES[type(theirs).__name__][1](theirs, cfg)


def _gpt2(config: Any) -> dict[str, Any]:
    return {
        **_sizes(config, config.n_inner or 4 * config.hidden_size),
        "eps": config.layer_norm_epsilon,
        "act_fn": config.activation_function,
        "use_attn_scale": config.scale_attn_weights,
        "scale_attn_by_inverse_layer_idx": config.scale_attn_by_inverse_layer_idx,
    }


def _neox(config: Any) -> dict[str, Any]:
    rope = _rope(config)
    sizes = _sizes(config, config.intermediate_size)
    share = rope.get("partial_rotary_factor", getattr(config, "rotary_pct", 1.0))
    return {
        **sizes,
        **_rotary(config, round(share * sizes["d_head"])),
        "eps": config.layer_norm_eps,
        "act_fn": config.hidden_act,
        "parallel_attn_mlp": config.use_parallel_residual,
        "default_prepend_bos": False,
    }


def _llama(config: Any) -> dict[str, Any]:
    sizes = _sizes(config, config.intermediate_size)
    shared = config.num_key_value_heads
    return {
        **sizes,
        **_rotary(config, sizes["d_head"]),
        **_windows(config),
        "eps": config.rms_norm_eps,
        "act_fn": config.hidden_act,
        "n_key_value_heads": None if shared == config.num_attention_heads else shared,
        "normalization_type": "RMS",
        "final_rms": True,
        "gated_mlp": True,
    }


def _qwen2(config: Any) -> dict[str, Any]:
    return {**_llama(config), "default_prepend_bos": False, "tokenizer_prepends_bos": True}


def _sizes(config: Any, d_mlp: int) -> dict[str, Any]:
    return {
        "d_model": config.hidden_size,
        "d_head": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "n_heads": config.num_attention_heads,
        "n_layers": config.num_hidden_layers,
        "n_ctx": config.max_position_embeddings,
        "d_vocab": config.vocab_size,
        "d_mlp": d_mlp,
    }


def _rope(config: Any) -> Mapping[str, Any]:
    """Rotary settings, which version 5 of transformers keeps in one place."""
    older = {"rope_theta": getattr(config, "rope_theta", 10000.0), **(getattr(config, "rope_scaling", None) or {})}
    return {**older, **(getattr(config, "rope_parameters", None) or {})}


def _windows(config: Any) -> dict[str, Any]:
    """Settings of layers with a sliding window: all layers, or those that the configuration names."""
    window, n_layers = getattr(config, "sliding_window", None), config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * n_layers
    if not window or not getattr(config, "use_sliding_window", True) or "sliding_attention" not in kinds:
        return {}
    types = ["local" if kind == "sliding_attention" else "global" for kind in kinds]
    return {"use_local_attn": True, "window_size": window, "attn_types": types}


def _rotary(config: Any, rotary_dim: int) -> dict[str, Any]:
    """Rotary positions: usual, linear or Llama 3.1's; `dynamic` positions equal the usual ones up to `n_ctx`."""
    rope = _rope(config)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "dynamic", "linear", "llama3"):
        raise NotImplementedError(f"rotary positions of kind {kind}")
    usual = {
        "positional_embedding_type": "rotary",
        "rotary_adjacent_pairs": False,
        "rotary_dim": rotary_dim,
        "rotary_base": rope["rope_theta"],
    }
    if kind in ("default", "dynamic"):
        return usual
    if kind == "linear":  # Llama 3.1's, with every wave among the slow ones
        limits = {"NTK_by_parts_low_freq_factor": 1e18, "NTK_by_parts_high_freq_factor": 2e18}
        return {**usual, "use_NTK_by_parts_rope": True, "NTK_by_parts_factor": rope.get("factor", 1.0), **limits}
    return {
        **usual,
        "use_NTK_by_parts_rope": True,
        "NTK_original_ctx_len": rope.get("original_max_position_embeddings", config.max_position_embeddings),
        "NTK_by_parts_low_freq_factor": rope.get("low_freq_factor", 1.0),
        "NTK_by_parts_high_freq_factor": rope.get("high_freq_factor", 4.0),
        "NTK_by_parts_factor": rope.get("factor", 1.0),
    }


def _heads(weight: Float[Tensor, "rows d_model"], n: int) -> Float[Tensor, "head d_model width"]:
    return rearrange(weight, "(head width) d_model -> head d_model width", head=n)


def _bias(name: str, part: Any) -> StateDict:
    """The bias of a linear map under a name; empty without a bias."""
    return {} if part.bias is None else {name: part.bias}


def _norms(pairs: Mapping[str, Any]) -> StateDict:
    """Gains and biases of normalisations under new names."""
    kinds = {"w": "weight", "b": "bias"}
    found = {
        f"{name}.{ours}": getattr(part, kind, None) for name, part in pairs.items() for ours, kind in kinds.items()
    }
    return {name: value for name, value in found.items() if value is not None}


def _gpt2_weights(theirs: Any, cfg: Any) -> StateDict:
    stem, n = theirs.transformer, cfg.n_heads
    state = {"embed.W_E": stem.wte.weight, "pos_embed.W_pos": stem.wpe.weight, "unembed.W_U": theirs.lm_head.weight.T}
    state |= _norms({"ln_final": stem.ln_f})
    for layer, block in enumerate(stem.h):
        at, mlp = f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        parts = zip("QKV", block.attn.c_attn.weight.chunk(3, 1), block.attn.c_attn.bias.chunk(3), strict=True)
        for kind, weight, bias in parts:
            state[f"{at}.W_{kind}"], state[f"{at}.b_{kind}"] = _heads(weight.T, n), bias.unflatten(0, (n, -1))
        state[f"{at}.W_O"] = block.attn.c_proj.weight.unflatten(0, (n, -1))
        state[f"{at}.b_O"] = block.attn.c_proj.bias
        state |= {f"{mlp}.W_in": block.mlp.c_fc.weight, f"{mlp}.b_in": block.mlp.c_fc.bias}
        state |= {f"{mlp}.W_out": block.mlp.c_proj.weight, f"{mlp}.b_out": block.mlp.c_proj.bias}
        state |= _norms({f"blocks.{layer}.ln1": block.ln_1, f"blocks.{layer}.ln2": block.ln_2})
    return state


def _neox_weights(theirs: Any, cfg: Any) -> StateDict:
    stem, n = theirs.gpt_neox, cfg.n_heads
    state = {"embed.W_E": stem.embed_in.weight, "unembed.W_U": theirs.get_output_embeddings().weight.T}
    state |= _norms({"ln_final": stem.final_layer_norm})
    for layer, block in enumerate(stem.layers):
        at, mlp = f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        joint = block.attention.query_key_value
        kinds = rearrange(joint.weight, "(head kind width) d_model -> kind head d_model width", head=n, kind=3)
        state |= {f"{at}.W_{kind}": weight for kind, weight in zip("QKV", kinds, strict=True)}
        if joint.bias is not None:
            biases = rearrange(joint.bias, "(head kind width) -> kind head width", head=n, kind=3)
            state |= {f"{at}.b_{kind}": bias for kind, bias in zip("QKV", biases, strict=True)}
        out = block.attention.dense
        state |= {f"{at}.W_O": out.weight.T.unflatten(0, (n, -1)), **_bias(f"{at}.b_O", out)}
        into, back = block.mlp.dense_h_to_4h, block.mlp.dense_4h_to_h
        state |= {f"{mlp}.W_in": into.weight.T, f"{mlp}.b_in": into.bias}
        state |= {f"{mlp}.W_out": back.weight.T, f"{mlp}.b_out": back.bias}
        norms = {"ln1": block.input_layernorm, "ln2": block.post_attention_layernorm}
        state |= _norms({f"blocks.{layer}.{name}": norm for name, norm in norms.items()})
    return state


def _llama_weights(theirs: Any, cfg: Any) -> StateDict:
    stem, shared = theirs.model, cfg.n_key_value_heads
    state = {"embed.W_E": stem.embed_tokens.weight, "unembed.W_U": theirs.lm_head.weight.T}
    state |= _norms({"ln_final": stem.norm})
    mark, n_shared = ("_", shared) if shared else ("", cfg.n_heads)
    for layer, block in enumerate(stem.layers):
        at, mlp, attn = f"blocks.{layer}.attn", f"blocks.{layer}.mlp", block.self_attn
        linear = {"Q": attn.q_proj, f"{mark}K": attn.k_proj, f"{mark}V": attn.v_proj}
        for kind, part in linear.items():
            n, (first, last) = cfg.n_heads if kind == "Q" else n_shared, (kind[:-1], kind[-1])
            state[f"{at}.{first}W_{last}"] = _heads(part.weight, n)
            if part.bias is not None:
                state[f"{at}.{first}b_{last}"] = part.bias.unflatten(0, (n, -1))
        state[f"{at}.W_O"] = attn.o_proj.weight.T.unflatten(0, (cfg.n_heads, -1))
        state |= _bias(f"{at}.b_O", attn.o_proj)
        matrices = {"W_in": block.mlp.up_proj, "W_gate": block.mlp.gate_proj, "W_out": block.mlp.down_proj}
        state |= {f"{mlp}.{name}": part.weight.T for name, part in matrices.items()}
        norms = {"ln1": block.input_layernorm, "ln2": block.post_attention_layernorm}
        state |= _norms({f"blocks.{layer}.{name}": norm for name, norm in norms.items()})
    return state


_FAMILIES: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Any, Any], StateDict]]] = {
    "GPT2LMHeadModel": (_gpt2, _gpt2_weights),
    "GPTNeoXForCausalLM": (_neox, _neox_weights),
    "LlamaForCausalLM": (_llama, _llama_weights),
    "MistralForCausalLM": (_llama, _llama_weights),
    "Qwen2ForCausalLM": (_qwen2, _llama_weights),
}
MODEL_CLASSES = tuple(_FAMILIES)
