"""Models published with "The clock and the pizza" (Zhong et al. 2023), as hooked models.

Files are safetensors with the authors' names of weights; `config` in their metadata is the authors' configuration as
JSON. Queries, keys and values are `head d_head d_model` there, W_O is `d_model (head d_head)`, W_in `d_mlp d_model`,
W_out `d_model d_mlp`, and embeddings `d_model vocabulary`; attention and unembedding have no biases.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from mnemoscope import HookedModel, InputError, ModelSpec
from mnemoscope.models import build, read_original
from mnemoscope.systems.modular_addition.tasks import ModularAddition


@dataclass(frozen=True, kw_only=True, eq=False)
class Original:
    """A published model, with the share of the softmax in its attention."""

    model: HookedModel
    task: ModularAddition
    attention_mix: float


@torch.no_grad()
def load_original(path: Path) -> Original:
    """The model of a file; an `InputError` where it holds another one.

    Its split is not in the file: the task has that of seed 0.
    """
    config, found = read_original(Path(path))
    if not {"C", "attn_coeff", "n_heads", "d_model"} <= set(config) or config.get("n_layers") != 1:
        raise InputError(f"path must be a file of one layer with the authors' configuration in it; got {path}")
    p, width = config["C"], config["d_model"]
    spec = ModelSpec(
        d_model=width,
        n_heads=config["n_heads"],
        d_mlp=len(found["blocks.0.mlp.b_in"]),
        normalization="none",
        attention_dir="bidirectional",
        attention_mix=float(config["attn_coeff"]),
    )
    model = build(spec, d_vocab=p, n_ctx=len(found["pos_embed.W_pos"]), seed=0)
    state = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    heads = (spec.n_heads, spec.head_width, width)
    turned = {"W_Q": (1, 2), "W_K": (1, 2), "W_V": (1, 2), "W_in": (0, 1), "W_out": (0, 1), "W_E": (0, 1)}
    for name, value in found.items():
        kind = name.rsplit(".", 1)[-1]
        value = value.T.reshape(heads) if kind == "W_O" else value
        state[name] = value.transpose(*turned[kind]) if kind in turned else value
    for name, parameter in model.named_parameters():
        parameter.copy_(state[name])
    return Original(model=model.eval(), task=ModularAddition(modulus=p).for_seed(0), attention_mix=spec.attention_mix)
