"""A TransformerLens `HookedTransformer` from a run: its configuration from `run.json`, its weights from the archive.

Parameters that are neither shipped nor drawn from the seed are zero: biases, and positions that a model does not have.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from archives import Run, stream

Hook = tuple[str | Callable[..., Any], Callable[..., Any]]


def build(run: Run, *, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None) -> HookedTransformer:
    """The trained model of a run. A task of vectors has their width for `d_vocab`; see `run_vectors`."""
    spec = run.model
    width = run.weights.get("blocks.0.mlp.W_in", torch.empty(0, spec["d_mlp"] or 0)).shape[1] if spec["mlp"] else None
    config = HookedTransformerConfig(
        n_layers=spec["n_layers"],
        d_model=spec["d_model"],
        n_heads=spec["n_heads"],
        d_head=spec.get("d_head") or spec["d_model"] // spec["n_heads"],
        d_mlp=width,
        attn_only=not spec["mlp"],
        act_fn="relu" if spec["act_fn"] == "identity" else spec["act_fn"],
        normalization_type=None if spec["normalization"] == "none" else spec["normalization"],
        attention_dir=spec.get("attention_dir", "causal"),
        n_ctx=n_ctx,
        d_vocab=d_vocab,
        d_vocab_out=d_vocab_out or d_vocab,
        init_weights=False,
        device="cpu",
    )
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # it announces its end at every call
        warnings.simplefilter("ignore")
        model = HookedTransformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        if "embed.W_E" not in run.weights:
            _draw_frozen(model, run)
        named = dict(model.named_parameters())
        for name, value in run.weights.items():
            named[name].copy_(value)
    if spec["act_fn"] == "identity" and spec["mlp"]:
        for block in model.blocks:
            block.mlp.act_fn = _identity
    return model.eval().requires_grad_(False)


def _identity(x: Tensor) -> Tensor:
    return x


def _draw_frozen(model: HookedTransformer, run: Run) -> None:
    """Draw the weights that a model starts with, and of which training left some alone, in the order of parameters.

    `memories` is the start of Bietti et al. 2023: queries are the identity, embeddings are normal, all else is uniform.
    `normal` is that of Nichani et al. 2025: variance one over the width that is read.
    """
    spec, draws = run.model, stream(run.seed, run.model["initialisation"])
    for name, value in model.named_parameters():
        if spec["initialisation"] == "normal":
            value.normal_(generator=draws).div_(math.sqrt(value.shape[0 if name[-3:] in ("_in", "out", "W_U") else -1]))
        elif name.endswith("W_Q"):
            value.copy_(torch.eye(value.shape[-1]))
        elif name in ("embed.W_E", "pos_embed.W_pos"):
            value.normal_(generator=draws)
        else:
            value.uniform_(-1, 1, generator=draws).div_(math.sqrt(value.shape[-2] if value.ndim > 1 else 1))
    for name, value in model.named_parameters():
        no_mlp = any(name.startswith(f"blocks.{layer}.mlp.") for layer in range(spec["first_mlp"]))
        if ".b_" in name or no_mlp or (name == "pos_embed.W_pos" and not spec["positions"]):
            value.zero_()
    if spec.get("silent") is not None:
        model.embed.W_E[spec["silent"]] = 0


def answers(model: HookedTransformer, tokens: Tensor, hooks: list[Hook] | None = None) -> Tensor:
    """Logits at every position, in portions of 2,048 sequences."""
    return torch.cat([model.run_with_hooks(rows, fwd_hooks=hooks or []) for rows in tokens.split(2048)])


def record(model: HookedTransformer, tokens: Tensor, name: str) -> Tensor:
    """The activation at one hook point, for all sequences."""
    found: list[Tensor] = []
    for rows in tokens.split(2048):
        hooks: list[Hook] = [(name, lambda value, hook: found.append(value.detach().clone()))]
        model.run_with_hooks(rows, fwd_hooks=hooks)
    return torch.cat(found)


def run_vectors(model: HookedTransformer, vectors: Tensor) -> Tensor:
    """Outputs of a model that reads vectors: these times W_E, and positions, are the start of the residual stream."""
    start = vectors @ model.W_E + model.W_pos[: vectors.shape[1]]
    return torch.cat([model(rows, start_at_layer=0) for rows in start.split(512)])


def fix_mean(value: Tensor, head: int | None = None) -> Callable[..., Tensor]:
    """A hook that puts the mean of a recorded activation over sequences in its place, of one head or of all."""
    mean = value.mean(0)

    def hook(activation: Tensor, hook: object) -> Tensor:
        changed = activation.clone()
        if head is None:
            changed[:] = mean
        else:
            changed[:, :, head] = mean[:, head]
        return changed

    return hook
