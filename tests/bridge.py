"""A `TransformerBridge` with the weights of a `HookedTransformer`: TransformerLens's line after 4.0."""

import copy
from typing import Any

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import LlamaConfig, LlamaForCausalLM

from mnemoscope.models.building import from_configuration
from mnemoscope.models.language import families
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER, HookedTransformer
from tests.support import perturbed

HEARD_BY_NATIVE = frozenset() if HAS_HOOKED_TRANSFORMER else frozenset({"pattern"})
"""Which of the scores and the pattern of attention a native bridge goes on with when a hook changes them."""
_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "n_ctx", "d_vocab", "act_fn", "normalization_type")


def as_bridge(model) -> TransformerBridge:
    """The same function, for models with LayerNorm and an MLP."""
    cfg = model.cfg
    bridge = TransformerBridge.boot_native({**{name: getattr(cfg, name) for name in _SIZES}, "dtype": cfg.dtype})
    head = bridge.original_model.head._original_component
    if not isinstance(head.bias, torch.nn.Parameter):  # since 4.0 it is a buffer of zeros
        head.bias = torch.nn.Parameter(torch.zeros(cfg.d_vocab_out))
    own = dict(model.named_parameters())

    def matrix(weight):  # head_index rows columns, to the weight of a linear layer
        return weight.permute(0, 2, 1).flatten(0, 1)

    state = {"tok_embed.weight": own["embed.W_E"], "pos.weight": own["pos_embed.W_pos"]}
    state |= {"head.weight": own["unembed.W_U"].T, "head.bias": own["unembed.b_U"]}
    state |= {"ln_out.weight": own["ln_final.w"], "ln_out.bias": own["ln_final.b"]}
    for layer in range(cfg.n_layers):
        ours, theirs = f"blocks.{layer}", f"layers.{layer}"
        for kind in "QKV":
            state[f"{theirs}.attn.{kind.lower()}.weight"] = matrix(own[f"{ours}.attn.W_{kind}"])
            state[f"{theirs}.attn.{kind.lower()}.bias"] = own[f"{ours}.attn.b_{kind}"].flatten()
        state[f"{theirs}.attn.o.weight"] = own[f"{ours}.attn.W_O"].flatten(0, 1).T
        state[f"{theirs}.attn.o.bias"] = own[f"{ours}.attn.b_O"]
        for kind in ("in", "out"):
            state[f"{theirs}.mlp.fc_{kind}.weight"] = own[f"{ours}.mlp.W_{kind}"].T
            state[f"{theirs}.mlp.fc_{kind}.bias"] = own[f"{ours}.mlp.b_{kind}"]
        for norm in ("ln1", "ln2"):
            state |= {
                f"{theirs}.{norm}.weight": own[f"{ours}.{norm}.w"],
                f"{theirs}.{norm}.bias": own[f"{ours}.{norm}.b"],
            }
    theirs = {
        name.replace("._original_component", ""): value for name, value in bridge.original_model.named_parameters()
    }
    assert theirs.keys() == state.keys()
    with torch.no_grad():
        for name, value in state.items():
            theirs[name].copy_(value)
    return bridge.eval()


def llama_and_bridge(**changes: Any) -> tuple[HookedTransformer, TransformerBridge]:
    """A Llama with rotary positions, a gated MLP and shared keys, loaded as either; the same at every call."""
    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
        max_position_embeddings=20,
        attn_implementation="eager",
        architectures=["LlamaForCausalLM"],
        **changes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        theirs = perturbed(LlamaForCausalLM(config).double().eval(), scale=0.5)
        model = from_configuration(
            {
                **{"n_layers": 2, "d_model": 8, "n_heads": 4, "d_head": 2, "d_mlp": 16, "n_ctx": 20, "d_vocab": 50},
                **{"act_fn": "silu", "normalization_type": "RMS", "eps": config.rms_norm_eps, "final_rms": True},
                **{"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False, "rotary_dim": 2},
                **{"n_key_value_heads": 2, "gated_mlp": True, "dtype": "float64"},
            }
        )
        state = {name: value.clone() for name, value in families.convert_weights(theirs, model.cfg).items()}
        model.load_and_process_state_dict(
            state,
            fold_ln=False,
            center_writing_weights=False,
            center_unembed=False,
            fold_value_biases=False,
            refactor_factored_attn_matrices=False,
        )
    return model.eval(), build_bridge_from_module(theirs, "LlamaForCausalLM", hf_config=config).eval()


TINY: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 20, "attn_implementation": "eager",
}  # fmt: skip
"""Sizes of a tiny model of transformers."""


def tiny_bridge(model: type, config: type, **changes: Any) -> tuple[Any, TransformerBridge]:
    """A model of transformers with random weights far from zero, and a copy behind a bridge; the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        theirs = perturbed(model(config(**TINY, architectures=[model.__name__], **changes)).eval(), scale=0.2)
    return theirs, build_bridge_from_module(copy.deepcopy(theirs), model.__name__, hf_config=theirs.config).eval()
