"""Tiny language models of 21 architectures with random weights, as the transformers library makes them."""

from functools import cache
from typing import Any

import torch
import transformers

D_VOCAB = 48
N_CTX = 32
_COMMON: dict[str, Any] = {
    "vocab_size": D_VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "attn_implementation": "eager",
    "initializer_range": 0.2,
}  # fmt: skip
_LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": N_CTX,
}  # fmt: skip
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": N_CTX}
_GEMMA = {**_LLAMA, "head_dim": 8}
_WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 8}
_LLAMA_3_1 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-2": ("GPT2", _GPT),
    "Pythia": ("GPTNeoX", {**_LLAMA, "num_key_value_heads": 4, "rotary_pct": 0.5, "use_parallel_residual": True}),
    "GPT-J": ("GPTJ", {**_GPT, "rotary_dim": 4}),
    "GPT-Neo": ("GPTNeo", {"hidden_size": 16, "num_layers": 2, "num_heads": 4, "max_position_embeddings": N_CTX,
                           "attention_types": [[["global", "local"], 1]], "window_size": 4}),
    "OPT": ("OPT", {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "max_position_embeddings": N_CTX, "word_embed_proj_dim": 16}),
    "BLOOM": ("Bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "Llama": ("Llama", _LLAMA),
    "Llama 3.1 scaling": ("Llama", {**_LLAMA, "rope_parameters": _LLAMA_3_1}),
    "Llama, own head size": ("Llama", {**_LLAMA, "head_dim": 8}),
    "Mistral, window": ("Mistral", {**_LLAMA, "sliding_window": 4}),
    "Qwen 2": ("Qwen2", _LLAMA),
    "Qwen 3": ("Qwen3", {**_LLAMA, "head_dim": 8}),
    "Gemma 1": ("Gemma", _GEMMA),
    "Gemma 2": ("Gemma2", {**_GEMMA, **_WINDOWS}),
    "Gemma 3": ("Gemma3", {**_GEMMA, **_WINDOWS}),
    "Phi": ("Phi", {**_LLAMA, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "Phi 3": ("Phi3", {**_LLAMA, "num_key_value_heads": 4}),
    "Mixtral": ("Mixtral", {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "OLMo 2": ("Olmo2", _LLAMA),
    "StableLM": ("StableLm", {**_LLAMA, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "Falcon": ("Falcon", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": False,
                          "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False,
                          "max_position_embeddings": N_CTX}),
}  # fmt: skip
"""By name the prefix of its classes, and its configuration."""


@cache
def architecture(name: str) -> Any:
    """A model in float32 and evaluation mode, the same at every call; biases and gains are not their initial ones."""
    prefix, sizes = ARCHITECTURES[name]
    own = "Gemma3Text" if prefix == "Gemma3" else prefix
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        config = getattr(transformers, f"{own}Config")(**{**_COMMON, **sizes})
        end = "LMHeadModel" if prefix == "GPT2" else "ForCausalLM"
        model = getattr(transformers, prefix + end)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    return model.requires_grad_(False)
