"""The terms of a difference of logits: one for each part of the model that writes to the residual stream.

Parts and their labels: the embeddings `embed` and `pos_embed`; every head `L0H1`, its value bias through W_O included;
the output bias of every attention layer `L0 b_O`; every MLP `L0 MLP` without its output bias; that bias `L0 b_out`; the
bias of the final normalisation `ln_final b`; the unembedding bias `b_U`. Where hooks are on the model, `hooks` is what
they wrote past the parts: into the residual stream, the summed output of a layer's heads, or the logits. An MLP whose
output a hook replaces keeps its label: its term is what was written less `b_out`.

A head is its pattern times its values, and an MLP its activations times W_out, so that both split further: a head by
the position that its values come from, an MLP by neuron.
"""

from collections.abc import Mapping
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.attribution.residual import Reading
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, is_hooked

Terms = Mapping[str, Float[Tensor, "batch pos"]]


def component_hooks(model: HookedModel) -> set[str]:
    """The activations that `component_terms` needs."""
    cfg = model.cfg
    names = {"hook_embed", *(["hook_pos_embed"] if _adds_positions(model) else [])}
    names |= {f"blocks.{layer}.attn.{_of_heads(model)}" for layer in range(cfg.n_layers)}
    return names | {f"blocks.{layer}.hook_mlp_out" for layer in range(cfg.n_layers) if not cfg.attn_only}


def component_terms(model: Any, reading: Reading) -> dict[str, Float[Tensor, "batch pos"]]:
    """The term of every part, in the order in which they write."""
    along = reading.direction
    embeddings = ("embed", "pos_embed") if _adds_positions(model) else ("embed",)
    terms = {name: _along(reading.at(f"hook_{name}"), along) for name in embeddings}
    for layer, block in enumerate(model.blocks):
        heads = head_terms(model, reading, layer).unbind(-1)
        terms |= {f"L{layer}H{head}": term for head, term in enumerate(heads)}
        terms[f"L{layer} b_O"] = _constant(block.attn.b_O, along)
        if not model.cfg.attn_only:
            bias = _constant(block.mlp.b_out, along)
            terms[f"L{layer} MLP"] = _along(reading.at(f"blocks.{layer}.hook_mlp_out"), along) - bias
            terms[f"L{layer} b_out"] = bias
    return terms | dict(reading.constants)


def kind_of(label: str) -> str:
    """The kind of a term: that of an embedding, a head, an MLP, a bias or hooks."""
    if label in ("embed", "pos_embed"):
        return "embedding"
    if label == "hooks":
        return "hooks"
    if label.endswith(" MLP"):
        return "MLP"
    return "bias" if " " in label or label == "b_U" else "head"


def head_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index"]:
    """The term of every head of a layer."""
    written = reading.at(f"blocks.{layer}.attn.{_of_heads(model)}")
    along = reading.direction[:, :, None] if model.cfg.use_attn_result else _into_heads(model, reading, layer)
    return (written * along).sum(-1)


def neuron_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos neuron"]:
    """The term of every neuron of a layer: its activation times its row of W_out; they add up to the MLP's.

    Raises InputError where they do not, because a hook is on the MLP's output.
    """
    values, bias = model.W_out[layer].double(), model.blocks[layer].mlp.b_out
    onto = einsum(values, reading.direction, "neuron d_model, batch pos d_model -> batch pos neuron")
    terms = reading.at(f"blocks.{layer}.mlp.hook_post") * onto
    written = _along(reading.at(f"blocks.{layer}.hook_mlp_out"), reading.direction)
    total = written - _constant(bias, reading.direction)
    _adds_up(f"the output of the MLP of layer {layer}", "its neurons", terms, total, model, reading)
    return terms


def source_terms(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index key"]:
    """The term of every head of a layer by the position its values come from; over the keys they add up to the head's.

    Raises InputError where they do not, because a hook is on the head's output.
    """
    values = reading.cache[f"blocks.{layer}.attn.hook_v"].double()
    shared = model.cfg.n_heads // values.shape[2]  # grouped-query attention: so many heads share their values
    values = values.repeat_interleave(shared, dim=2)
    onto = _into_heads(model, reading, layer)
    read = einsum(values, onto, "batch key head_index d_head, batch pos head_index d_head -> batch pos head_index key")
    pattern = reading.cache[f"blocks.{layer}.attn.hook_pattern"][:, :, reading.columns].double()
    terms = read * pattern.transpose(1, 2)
    for head, total in enumerate(head_terms(model, reading, layer).unbind(-1)):
        _adds_up(f"the output of head L{layer}H{head}", "its sources", terms[:, :, head], total, model, reading)
    return terms


def hooks_term(model: HookedModel, terms: Terms, reading: Reading) -> dict[str, Float[Tensor, "batch pos"]]:
    """The writing of hooks past the parts, if hooks are on the model; 0 where the parts add up by themselves.

    Asserts that the parts add up to the difference of logits where no hook is on the model.
    """
    missing, allowed, beyond = _gap(torch.stack(list(terms.values()), -1), reading.truth, reading)
    if is_hooked(model):
        return {"hooks": torch.where(beyond, missing, torch.zeros_like(missing))}
    assert not beyond.any(), (
        f"the terms miss the logit difference by up to {float(missing[beyond].abs().max()):.3g}, "
        f"with {float(allowed.max()):.3g} allowed"
    )
    return {}


def _adds_up(what: str, parts: str, terms: Tensor, total: Tensor, model: HookedModel, reading: Reading) -> None:
    missing, _, beyond = _gap(terms, total, reading)
    if not beyond.any():
        return
    worst = f"{float(missing[beyond].abs().max()):.3g}"
    assert is_hooked(model), f"{parts} of {what} miss it by up to {worst}"
    raise InputError(
        f"{what} must be the sum of {parts}, and a hook on the model changed it by up to {worst} (logit difference): "
        "leave that layer out, or remove the hook"
    )


def _gap(terms: Tensor, total: Tensor, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    """The distance of terms from their total at the contrast's positions, its bound by rounding, and if it is more."""
    missing = torch.where(reading.contrast.positions, total - terms.sum(-1), 0.0)
    allowed = reading.rounding * (reading.size + terms.abs().sum(-1))
    return missing, allowed, missing.abs() > allowed


def _along(written: Tensor, direction: Tensor) -> Float[Tensor, "batch pos"]:
    return (written * direction).sum(-1)


def _constant(bias: Tensor | None, direction: Tensor) -> Float[Tensor, "batch pos"]:
    """The term of a bias; 0 where a bridged model has none."""
    return torch.zeros_like(direction[..., 0]) if bias is None else direction @ bias.double()


def _into_heads(model: Any, reading: Reading, layer: int) -> Float[Tensor, "batch pos head_index d_head"]:
    """The factor of z of every head."""
    writes = model.blocks[layer].attn.W_O.double()
    axes = "head_index d_head d_model, batch pos d_model -> batch pos head_index d_head"
    return einsum(writes, reading.direction, axes)


def _of_heads(model: HookedModel) -> str:
    """`hook_result` where the model computes it, since a hook may be on it."""
    return "hook_result" if model.cfg.use_attn_result else "hook_z"


def _adds_positions(model: HookedModel) -> bool:
    """True if positional embeddings go into the residual stream."""
    return model.cfg.positional_embedding_type == "standard"
