"""The format of the models published with "The clock and the pizza" (Zhong et al. 2023).

Files are safetensors with the authors' names of weights; `config` in their metadata is the authors' configuration as
JSON. Queries, keys and values are `head d_head d_model` there, W_O is `d_model (head d_head)`, W_in `d_mlp d_model`,
W_out `d_model d_mlp`, and embeddings `d_model vocabulary`; attention and unembedding have no biases.
"""

from typing import Any

from torch import Tensor

from mnemoscope.models import ORIGINAL_FORMATS

_TURNED = {"W_Q": (1, 2), "W_K": (1, 2), "W_V": (1, 2), "W_in": (0, 1), "W_out": (0, 1), "W_E": (0, 1)}
"""Axes that are exchanged, by kind of weight."""


def convert(config: dict[str, Any], found: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Configuration and weights under TransformerLens's names; None where the file has not the authors' names.

    Its split is not in the file.
    """
    if not {"C", "attn_coeff", "n_heads", "d_model"} <= set(config) or config.get("n_layers") != 1:
        return None
    n_heads, width, p = config["n_heads"], config["d_model"], config["C"]
    sizes = {"d_model": width, "n_heads": n_heads, "n_layers": 1, "d_head": width // n_heads}
    same: dict[str, Any] = {
        **sizes,
        "d_mlp": len(found["blocks.0.mlp.b_in"]),
        "act_fn": "relu",
        "attention_dir": "bidirectional",
        "normalization_type": None,
        "attention_mix": float(config["attn_coeff"]),
        "d_vocab": p,
        "n_ctx": len(found["pos_embed.W_pos"]),
    }
    heads = (n_heads, sizes["d_head"])
    some = found["blocks.0.mlp.b_in"]
    shapes = {**dict.fromkeys(("b_Q", "b_K", "b_V"), heads), "b_O": (width,)}
    weights = {f"blocks.0.attn.{name}": some.new_zeros(shape) for name, shape in shapes.items()}
    weights["unembed.b_U"] = some.new_zeros(p)
    for name, value in found.items():
        kind = name.rsplit(".", 1)[-1]
        value = value.T.reshape(*heads, width) if kind == "W_O" else value
        weights[name] = (value.transpose(*_TURNED[kind]) if kind in _TURNED else value).contiguous()
    return same, weights


ORIGINAL_FORMATS.add("clock-and-pizza", convert)
