"""How well what is read of a head predicts what happens to the logits when the head is removed.

Prediction: minus what the head adds to the logits, read in two ways.

- `circuit`: through its OV circuit from the embeddings (`circuits`) and its actual pattern:
  sum_j pattern_ij ((W_E[t_j] + W_pos[j]) W_V / sigma_j + b_V) W_O W_U / sigma_final;
- `direct`: from its actual output, z W_O W_U / sigma_final (direct logit attribution).

Under mean ablation the same read of the mean is added back. The actual change is that of the whole model when `z` is
replaced. Both are compared without their mean over the logits, which changes no prediction.

*Shows* where the weights' story fails. What `direct` predicts and `circuit` does not came into the head's values from
earlier layers. What even `direct` does not predict runs through later heads and MLPs, or through sigma: the head
matters to them, or they make up for its loss.

*Does not show* which later part it is; that takes path patching.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.attribution.residual import chunks
from mnemoscope.analyses.circuits.normalisation import (
    NORMALISATIONS,
    Normalisation,
    Sigmas,
    actual_sigmas,
    described,
    frozen_sigmas,
    recorded,
)
from mnemoscope.analyses.circuits.prediction_fit import fit, fit_sums, row_weight
from mnemoscope.analyses.circuits.weights import EffectiveWeights, effective_weights
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import removal
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_with

Removal = Literal["zero", "mean"]
REMOVALS: tuple[Removal, ...] = ("zero", "mean")
READS = ("circuit", "direct")
MEASURES = ("r2", "correlation", "slope")
MAX_BYTES = 2**26
"""What the sequences that are run at a time may take up."""


@torch.no_grad()
def predict_removal(
    model: HookedModel,
    batch: Batch,
    *,
    reference: Batch | None = None,
    kinds: Sequence[Removal] = REMOVALS,
    normalisation: Normalisation = "linearised",
    at: Batch | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Agreement of the predicted with the actual change of the logits when a head is removed, at scored positions.

    Args:
        model: Any hooked model whose positions are added to the residual stream.
        batch: Sequences; those of an enumeration count by their probability.
        reference: For the means, position by position; as long as the batch. None: the batch itself.
        kinds: `zero`, `mean` or both.
        normalisation: What the reads are divided by, see `normalisation`.
        at: Where sigma is frozen, for `linearised`; none: at the batch itself.
        layers: Which layers; none: all.

    Returns:
        Over (kind, layer, head, read): `r2`, `correlation` and `slope` of the change of the logits (see `fit`);
        over (kind, layer, head): `actual_rms` of that change, in logits.

    Raises:
        InputError: The model is not supported, nothing is scored, or batch and reference differ in length.
    """
    one_of("normalisation", normalisation, NORMALISATIONS)
    for kind in kinds:
        one_of("an entry of kinds", kind, REMOVALS)
    weights = effective_weights(model, layers)
    reference = batch if reference is None else reference
    _check(model, weights, batch, reference)
    at, heads = batch if at is None else at, range(model.cfg.n_heads)
    frozen = None if normalisation == "actual" else frozen_sigmas(model, weights, normalisation, at)
    totals = torch.zeros(4, len(kinds), len(weights.layers), model.cfg.n_heads, len(READS), dtype=torch.double)
    means, recordings = _mean_reads(model, weights, reference, frozen), Recordings(model)
    source = Named(name="reference", value=reference)
    for rows in _rows(model, weights, batch):
        chunk = batch.select(rows)
        clean = run_with(model, chunk, []).double()
        reads, sigmas = _reads(model, weights, chunk, frozen)
        for (number, kind), (index, layer), head in product(enumerate(kinds), enumerate(weights.layers), heads):
            site = Site(kind="z", layer=layer, head=head)
            actual = run_with(model, chunk, [removal(kind, site, source)], recordings=recordings).double() - clean
            lost = (reads - means if kind == "mean" else reads)[:, index, :, :, head]
            read = lost @ (weights.W_O[index, head] @ weights.W_U) / sigmas.final[..., None]
            totals[:, number, index, head] += _compared(actual, -read, chunk).cpu()
    measured, dims = fit(totals), ("kind", "layer", "head")
    variables: dict[str, Any] = {name: ((*dims, "read"), measured[name].numpy()) for name in MEASURES}
    variables["actual_rms"] = (dims, measured["actual_rms"][..., 0].numpy())
    coords = {"kind": list(kinds), "layer": list(weights.layers), "head": list(heads), "read": list(READS)}
    attrs = {"unit": "logit", "n": len(batch), "n_reference": len(reference)}
    return xr.Dataset(variables, coords=coords, attrs={**attrs, **described(weights, normalisation, at)})


def _check(model: HookedModel, weights: EffectiveWeights, batch: Batch, reference: Batch) -> None:
    if weights.W_pos is None:
        kind = model.cfg.positional_embedding_type
        raise InputError(f"the model's positions must be added to the residual stream; they are {kind}")
    if not batch.scored.any():
        raise InputError("batch has no scored position, where logits could be compared; mark some in batch.scored")
    lengths = batch.inputs.shape[1], reference.inputs.shape[1]
    if len(reference) == 0 or lengths[0] != lengths[1]:
        raise InputError(f"reference must hold sequences as long as the batch's ({lengths[0]}); got {lengths[1]}")


def _rows(model: HookedModel, weights: EffectiveWeights, batch: Batch) -> list[slice]:
    """Runs of sequences: logits, and patterns and z of all heads, are held at a time."""
    n_pos, n_heads = batch.inputs.shape[1], len(weights.layers) * model.cfg.n_heads
    by_position = 4 * weights.W_U.shape[1] + n_heads * (n_pos + 4 * weights.W_Q.shape[-1])
    return chunks(model, batch, n_pos * by_position, MAX_BYTES)


def _reads(
    model: HookedModel, weights: EffectiveWeights, batch: Batch, frozen: Sigmas | None
) -> tuple[Float[Tensor, "read layer batch pos head_index d_head"], Sigmas]:
    """The z of every head, predicted from the embeddings and actual; and what sigmas were used."""
    assert weights.W_pos is not None
    cache = recorded(model, weights, batch, ("pattern", "z"))
    sigmas = actual_sigmas(model, weights, cache) if frozen is None else frozen
    embedded = weights.W_E[batch.inputs] + weights.W_pos[: batch.inputs.shape[1]]
    predicted, actual = [], []
    for index, layer in enumerate(weights.layers):
        source = embedded / sigmas.layer[..., index, None]
        value = source[:, None] @ weights.W_V[index] + weights.b_V[index][:, None]
        z = cache[f"blocks.{layer}.attn.hook_pattern"] @ value
        predicted.append(z.transpose(1, 2))
        actual.append(cache[f"blocks.{layer}.attn.hook_z"])
    return torch.stack([torch.stack(predicted), torch.stack(actual)]), sigmas


def _mean_reads(
    model: HookedModel, weights: EffectiveWeights, reference: Batch, frozen: Sigmas | None
) -> Float[Tensor, "read layer 1 pos head_index d_head"]:
    total, n = torch.zeros((), dtype=torch.double), 0.0
    for chunk in (reference.select(rows) for rows in _rows(model, weights, reference)):
        count = row_weight(chunk).to(weights.W_E)
        reads, _ = _reads(model, weights, chunk, frozen)
        total = total + torch.einsum("b,rlbphd->rlphd", count, reads)
        n += float(count.sum())
    return total[:, :, None] / n


def _compared(
    actual: Float[Tensor, "batch pos d_vocab"], predicted: Float[Tensor, "read batch pos d_vocab"], batch: Batch
) -> Float[Tensor, "4 read"]:
    weight = (row_weight(batch)[:, None].to(batch.scored.device) * batch.scored).to(actual)
    change, guess = (values - values.mean(-1, keepdim=True) for values in (actual, predicted))
    return fit_sums(change.expand_as(guess), guess, weight[None, ..., None].expand_as(guess))
