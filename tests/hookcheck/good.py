"""Good models, small and of every kind that a law is about; all parameters are away from zero."""

from functools import cache

from tests.language_models import N_TOKENS, tokenizer
from tests.support import foreign_model

_SIZES = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 10, "n_ctx": 8, "d_vocab": 10}
_LLAMA = {
    **{"normalization_type": "RMS", "final_rms": True, "positional_embedding_type": "rotary", "act_fn": "silu"},
    **{"gated_mlp": True, "n_heads": 4, "n_key_value_heads": 2, "d_head": 4, "rotary_dim": 4},
}
CHANGES = {
    "plain": {},
    "llama": _LLAMA,
    "window": {"use_local_attn": True, "window_size": 3, "attn_types": ["global", "local"]},
    "parallel": {"parallel_attn_mlp": True},
    "post-norms": {**_LLAMA, "use_normalization_before_and_after": True, "attn_scores_soft_cap": 5.0},
    "bidirectional": {"attention_dir": "bidirectional"},
    "with-tokenizer": {"d_vocab": N_TOKENS},
    "attention-only": {"attn_only": True, "normalization_type": None},
}


@cache
def good(name: str):
    """The good model of a name, in double precision; the same at every call."""
    model = foreign_model(**{**_SIZES, "dtype": "float64", **CHANGES[name]})
    if name == "with-tokenizer":
        model.tokenizer = tokenizer()
    return model
