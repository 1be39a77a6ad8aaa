"""Prompts and models that the tests of patching share."""

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.pairs import PromptPairs
from tests.support import foreign_model, seeded


def prompt_pairs(n=3, n_pos=6, *, d_vocab=50, scored=(-1,), differ=None):
    """Random prompts; the corrupted ones differ from the clean ones at the positions `differ` (None: anywhere)."""
    tokens = torch.randint(d_vocab, (4, n, n_pos), generator=seeded(2))
    if differ is not None:
        other = tokens[1, :, list(differ)]
        tokens[1] = tokens[0]
        tokens[1, :, list(differ)] = other
    mask = torch.zeros(n, n_pos, dtype=torch.bool)
    mask[:, list(scored)] = True
    clean, corrupted = (Batch(inputs=tokens[i], targets=tokens[i + 2], scored=mask) for i in range(2))
    return PromptPairs(clean=clean, corrupted=corrupted, name="random")


PLAIN = {
    "LN": {},
    "none": {"normalization_type": None, "n_layers": 1, "act_fn": "relu"},
    "LNPre": {"normalization_type": "LNPre", "n_layers": 4, "act_fn": "gelu", "use_attn_scale": False},
    "RMS": {"normalization_type": "RMS", "act_fn": "silu", "dtype": "float64"},
    "attention only": {"n_layers": 3, "attn_only": True, "scale_attn_by_inverse_layer_idx": True},
}
"""Plain configurations, which can be resumed."""

_ROTARY = {"positional_embedding_type": "rotary", "d_head": 4}
REPRESENTED = {
    "rotary": {**_ROTARY, "rotary_dim": 4},
    "rotary halves": {**_ROTARY, "rotary_dim": 2, "rotary_adjacent_pairs": False},
    "gated": {"gated_mlp": True},
    "shared keys": {"n_key_value_heads": 1},
    "parallel": {"parallel_attn_mlp": True},
    "like Pythia": {**_ROTARY, "rotary_dim": 2, "rotary_adjacent_pairs": False, "parallel_attn_mlp": True},
    "like Llama": {
        **_ROTARY, "rotary_dim": 4, "rotary_adjacent_pairs": False, "n_heads": 4, "n_key_value_heads": 2,
        "gated_mlp": True, "normalization_type": "RMS", "final_rms": True, "act_fn": "silu", "n_layers": 3,
    },
    "local": {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]},
    "softcaps": {"output_logits_soft_cap": 1.5, "attn_scores_soft_cap": 2.0},
}  # fmt: skip
"""Other configurations that can be resumed."""

OTHERS = {
    "shortformer": {"positional_embedding_type": "shortformer"},
    "bidirectional": {"attention_dir": "bidirectional"},
    "solu": {"act_fn": "solu_ln"},
}
"""Configurations that cannot."""


def model(name):
    return foreign_model(**{**PLAIN, **REPRESENTED, **OTHERS}[name])
