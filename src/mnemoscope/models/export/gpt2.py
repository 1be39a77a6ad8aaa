"""A `HookedTransformer` as a GPT-2 of `transformers`, where that architecture can hold it exactly.

GPT-2 has learned positions, pre-norm blocks with LayerNorm, softmax attention over the past and heads that divide its
width. Its unembedding has no bias: one is moved into the bias of the last LayerNorm, b' = b + b_U W_U⁺, which changes
no logit where the columns of W_U are independent. A model without MLPs gets MLPs of one neuron that write zero.
"""

from collections.abc import Mapping

import torch
from einops import rearrange
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import has_linear_attention, reads_vectors
from mnemoscope.models.lens import HookedTransformer

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_new"}
"""TransformerLens's names and those of `transformers`."""
TOLERANCE = 1e-4
"""The largest difference of a logit."""


def as_gpt2(model: HookedTransformer) -> GPT2LMHeadModel:
    """The same model for `transformers`; logits differ by rounding only, which is checked on random tokens.

    Raises InputError where GPT-2's architecture cannot hold the model; the reasons are named.
    """
    if reasons := obstacles(model):
        raise InputError(f"GPT-2's architecture cannot hold this model: {'; '.join(reasons)}")
    result = GPT2LMHeadModel(_configuration(model)).to(model.cfg.dtype)
    result.load_state_dict(_weights(model), strict=True)
    result.eval()
    drawn = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.cfg.d_vocab, (4, model.cfg.n_ctx), generator=drawn)
    with torch.no_grad():
        furthest = float((result(tokens).logits - model(tokens.to(model.cfg.device)).cpu()).abs().max())
    if not furthest <= TOLERANCE:
        raise InputError(f"GPT-2's architecture cannot hold this model: logits differ by {furthest:.2g}")
    return result


def obstacles(model: HookedTransformer) -> list[str]:
    """Why GPT-2's architecture cannot hold a model; nothing where it can, up to rounding."""
    cfg = model.cfg
    reasons = {
        "it reads vectors": reads_vectors(model),
        "its attention is linear": has_linear_attention(model),
        f"its normalization is {cfg.normalization_type or 'none'}, not LN": cfg.normalization_type != "LN",
        "its attention is bidirectional": cfg.attention_dir != "causal",
        f"its positions are {cfg.positional_embedding_type}": cfg.positional_embedding_type != "standard",
        "it shares keys and values among heads": (cfg.n_key_value_heads or cfg.n_heads) != cfg.n_heads,
        "its MLPs are gated": cfg.gated_mlp,
        "attention and MLP are parallel": cfg.parallel_attn_mlp,
        "its heads do not divide its width": cfg.n_heads * cfg.d_head != cfg.d_model,
        f"it predicts {cfg.d_vocab_out} of {cfg.d_vocab} tokens": cfg.d_vocab_out != cfg.d_vocab,
        f"its activation function is {cfg.act_fn}": not cfg.attn_only and cfg.act_fn not in _ACTIVATIONS,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and model.b_U.any() and int(torch.linalg.matrix_rank(model.W_U.double())) < cfg.d_vocab:
        found.append("its unembedding has a bias that GPT-2 lacks and no other weight can take over")
    return found


def _configuration(model: HookedTransformer) -> GPT2Config:
    cfg = model.cfg
    return GPT2Config(
        vocab_size=cfg.d_vocab,
        n_positions=cfg.n_ctx,
        n_embd=cfg.d_model,
        n_layer=cfg.n_layers,
        n_head=cfg.n_heads,
        n_inner=1 if cfg.attn_only else cfg.d_mlp,
        activation_function="relu" if cfg.attn_only else _ACTIVATIONS[str(cfg.act_fn)],
        layer_norm_epsilon=cfg.eps,
        scale_attn_weights=cfg.use_attn_scale,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )


def _weights(model: HookedTransformer) -> dict[str, Tensor]:
    """The state of the GPT-2; its linear maps are stored as (input, output)."""
    state = dict(model.named_parameters())
    bias = state["ln_final.b"].double() + model.b_U.double() @ torch.linalg.pinv(model.W_U.double())
    weights = {
        "transformer.wte.weight": model.W_E,
        "transformer.wpe.weight": model.W_pos,
        "transformer.ln_f.weight": state["ln_final.w"],
        "transformer.ln_f.bias": bias.to(model.cfg.dtype),
        "lm_head.weight": model.W_U.T,
    }
    for layer in range(model.cfg.n_layers):
        own = {name: state.get(f"blocks.{layer}.{name}") for name in _PARTS}
        block = _block({name: value for name, value in own.items() if value is not None})
        weights |= {f"transformer.h.{layer}.{name}": value for name, value in block.items()}
    return {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}


_PARTS = (
    *(f"attn.{kind}_{part}" for kind in "Wb" for part in "QKVO"),
    *(f"ln{number}.{kind}" for number in (1, 2) for kind in "wb"),
    *(f"mlp.{kind}_{part}" for kind in "Wb" for part in ("in", "out")),
)
"""Parameters of a block by TransformerLens's names."""


def _block(of: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One block under the names of `transformers`."""
    reads = [rearrange(of[f"attn.W_{part}"], "head d_model d_head -> d_model (head d_head)") for part in "QKV"]
    found = {
        "ln_1.weight": of["ln1.w"],
        "ln_1.bias": of["ln1.b"],
        "attn.c_attn.weight": torch.cat(reads, 1),
        "attn.c_attn.bias": torch.cat([of[f"attn.b_{part}"].flatten() for part in "QKV"]),
        "attn.c_proj.weight": rearrange(of["attn.W_O"], "head d_head d_model -> (head d_head) d_model"),
        "attn.c_proj.bias": of["attn.b_O"],
    }
    if "mlp.W_in" in of:
        return {
            **found,
            "ln_2.weight": of["ln2.w"],
            "ln_2.bias": of["ln2.b"],
            "mlp.c_fc.weight": of["mlp.W_in"],
            "mlp.c_fc.bias": of["mlp.b_in"],
            "mlp.c_proj.weight": of["mlp.W_out"],
            "mlp.c_proj.bias": of["mlp.b_out"],
        }
    width = len(of["ln1.w"])
    shapes = {"c_fc.weight": (width, 1), "c_fc.bias": (1,), "c_proj.weight": (1, width), "c_proj.bias": (width,)}
    silent = {f"mlp.{name}": torch.zeros(shape) for name, shape in shapes.items()}
    return {**found, "ln_2.weight": torch.ones(width), "ln_2.bias": torch.zeros(width), **silent}
