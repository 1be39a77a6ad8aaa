"""Sigma, by which normalisation divides the residual stream before attention and the unembedding read it.

Folded weights (`analyses.head_weights`) leave out this division alone. Results say what is done about it:

- `folded`: sigma is left out (1). Shapes and signs of circuits are right, their size is not.
- `linearised`: sigma is frozen at its mean over a batch, one number per layer. Sizes are typical of the batch.
- `actual`: sigma of every position of every sequence. This is exact, and no longer one matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.head_weights import EffectiveWeights
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.reading import pick_nothing, unembed_only

Frozen = Literal["folded", "linearised"]
Normalisation = Literal["folded", "linearised", "actual"]
FROZEN: tuple[Frozen, ...] = ("folded", "linearised")
NORMALISATIONS: tuple[Normalisation, ...] = (*FROZEN, "actual")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sigmas:
    """Sigma before attention of every chosen layer, and before the unembedding; frozen ones have a single row."""

    layer: Float[Tensor, "batch pos layer"]
    final: Float[Tensor, "batch pos"]


@torch.no_grad()
def record_attention(
    model: HookedModel,
    weights: EffectiveWeights,
    batch: Batch,
    kinds: Sequence[str] = (),
    frozen: Sigmas | None = None,
) -> tuple[dict[str, Float[Tensor, "batch ..."]], Sigmas]:
    """Activations of attention of some `kinds`, such as `q`, in float64, and sigmas: `frozen`, or of every position.

    Raises InputError where one is not finite.
    """
    streams = [f"blocks.{layer}.hook_resid_pre" for layer in weights.layers]
    streams.append(f"blocks.{model.cfg.n_layers - 1}.hook_resid_post")
    names = {f"blocks.{layer}.attn.hook_{kind}" for layer in weights.layers for kind in kinds}.union(streams)
    with unembed_only(model, pick_nothing):
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names)
    for name in names:
        if not cache[name].isfinite().all():
            raise InputError(f"the model's {name} holds NaN or infinity; check its weights and hooks")
    activations = {name: cache[name].double() for name in names}
    for name in (name for name in names if name.endswith((".hook_k", ".hook_v"))):
        activations[name] = activations[name].repeat_interleave(model.cfg.n_heads // cache[name].shape[2], 2)
    if frozen is not None:
        return activations, frozen
    *before, final = (weights.sigma(activations[name]) for name in streams)
    return activations, Sigmas(layer=torch.stack(before, -1), final=final)


@torch.no_grad()
def frozen_sigmas(
    model: HookedModel, weights: EffectiveWeights, normalisation: Frozen, at: Batch | None = None
) -> Sigmas:
    """One sigma per layer; `linearised` needs a batch."""
    one_of("normalisation", normalisation, FROZEN)
    ones = torch.ones(1, 1, len(weights.layers), dtype=torch.double, device=weights.W_E.device)
    if normalisation == "folded" or not weights.normalised:
        return Sigmas(layer=ones, final=ones[..., 0])
    if at is None:
        raise InputError("normalisation='linearised' needs the batch at which sigma is frozen; pass at=batch")
    _, actual = record_attention(model, weights, at)
    real = at.real.to(actual.final)  # every sequence counts by its weight, however long it is
    share = (
        (sequence_weights(at) / sequence_weights(at).sum()).to(actual.final)[:, None] * real / real.sum(1, keepdim=True)
    )

    layer, final = (torch.einsum("bp,bp...->...", share, sigma)[None, None] for sigma in (actual.layer, actual.final))
    return Sigmas(layer=layer, final=final)


def sequence_weights(batch: Batch) -> Float[Tensor, " batch"]:
    """The weight of each sequence: its probability, or one."""
    return torch.ones(len(batch), dtype=torch.double) if batch.weights is None else batch.weights.double()


def normalisation_attrs(
    weights: EffectiveWeights, normalisation: Normalisation, at: Batch | None
) -> dict[str, str | int]:
    """Attributes of a result: what was done about normalisation."""
    words = {
        "folded": "sigma left out",
        "linearised": "sigma frozen at its mean over a batch, one number per layer",
        "actual": "sigma of every position of every sequence",
    }
    how = f"{normalisation}: {words[normalisation]}" if weights.normalised else "none"
    result: dict[str, str | int] = {"weights": weights.description, "normalisation": how}
    if normalisation == "linearised" and weights.normalised and at is not None:
        result["n_frozen_at"] = len(at)
    return result
