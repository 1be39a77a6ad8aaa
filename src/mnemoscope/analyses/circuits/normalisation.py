"""What normalisation divides by, at a stated point: LayerNorm linearised.

After folding (`effective_weights`) a normalisation is x / sigma(x), where sigma is the root of the variance plus eps.
A circuit is a matrix only if sigma is a constant.

- `folded`: sigma is left out (1). Shapes and signs of circuits are right, their size is not.
- `linearised`: sigma is frozen at its mean over the sequences and positions of a batch, one number a layer. Sizes
  are those that are typical of the batch; what varies with sigma from place to place is lost.
- `actual`: sigma of every position of every sequence. This is exact, and no longer one matrix: it is for predictions
  on given sequences. In the first layer sigma depends on the token and the position only.

Freezing sigma drops its derivative. The circuits are a read of the values, not of the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.weights import EffectiveWeights
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel

Frozen = Literal["folded", "linearised"]
Normalisation = Literal["folded", "linearised", "actual"]
FROZEN: tuple[Frozen, ...] = ("folded", "linearised")
NORMALISATIONS: tuple[Normalisation, ...] = (*FROZEN, "actual")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sigmas:
    """Sigma before attention of every chosen layer, and before the unembedding.

    The first axes are `batch pos` for actual values; frozen ones have length one there.
    """

    layer: Float[Tensor, "batch pos layer"]
    final: Float[Tensor, "batch pos"]


@torch.no_grad()
def recorded(
    model: HookedModel,
    weights: EffectiveWeights,
    batch: Batch,
    kinds: Sequence[str] = (),
    frozen: Sigmas | None = None,
) -> tuple[dict[str, Float[Tensor, "batch ..."]], Sigmas]:
    """Activations on a batch, in float64: of attention, and the residual streams that sigmas are read from.

    Args:
        model: Any hooked model.
        weights: Its folded weights, which name the layers.
        batch: The sequences.
        kinds: Of attention, such as `q` or `pattern`.
        frozen: Sigmas to take; none: those of every position of the batch.

    Raises:
        InputError: One of them is not finite.
    """
    streams = [f"blocks.{layer}.hook_resid_pre" for layer in weights.layers]
    streams.append(f"blocks.{model.cfg.n_layers - 1}.hook_resid_post")
    names = {f"blocks.{layer}.attn.hook_{kind}" for layer in weights.layers for kind in kinds}.union(streams)
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names)
    for name in names:
        if not cache[name].isfinite().all():
            raise InputError(f"the model's {name} holds NaN or infinity; check its weights and hooks")
    activations = {name: cache[name].double() for name in names}
    if frozen is not None:
        return activations, frozen
    *before, final = (weights.sigma(activations[name]) for name in streams)
    return activations, Sigmas(layer=torch.stack(before, -1), final=final)


@torch.no_grad()
def frozen_sigmas(
    model: HookedModel, weights: EffectiveWeights, normalisation: Frozen, at: Batch | None = None
) -> Sigmas:
    """One sigma a layer.

    Raises:
        InputError: The way is unknown, or `linearised` without a batch.
    """
    one_of("normalisation", normalisation, FROZEN)
    ones = torch.ones(1, 1, len(weights.layers), dtype=torch.double, device=weights.W_E.device)
    if normalisation == "folded" or not weights.normalised:
        return Sigmas(layer=ones, final=ones[..., 0])
    if at is None:
        raise InputError("normalisation='linearised' needs the batch at which sigma is frozen; pass at=batch")
    _, actual = recorded(model, weights, at)
    share = (row_weight(at) / row_weight(at).sum()).to(actual.final)

    def mean(sigma: Float[Tensor, "batch pos *layer"]) -> Float[Tensor, "1 1 *layer"]:
        return torch.einsum("b,bp...->...", share, sigma)[None, None] / sigma.shape[1]

    return Sigmas(layer=mean(actual.layer), final=mean(actual.final))


def row_weight(batch: Batch) -> Float[Tensor, " batch"]:
    """How much each sequence counts: its probability, or one."""
    return torch.ones(len(batch), dtype=torch.double) if batch.weights is None else batch.weights.double()


def described(weights: EffectiveWeights, normalisation: Normalisation, at: Batch | None) -> dict[str, str | int]:
    """Attributes of a result: what was done about normalisation."""
    words = {
        "folded": "sigma left out",
        "linearised": "sigma frozen at its mean over a batch, one number a layer",
        "actual": "sigma of every position of every sequence",
    }
    result: dict[str, str | int] = {"weights": weights.description}
    result["normalisation"] = f"{normalisation}: {words[normalisation]}" if weights.normalised else "none"
    if normalisation == "linearised" and weights.normalised and at is not None:
        result["n_frozen_at"] = len(at)
    return result
