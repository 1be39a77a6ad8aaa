"""The quality of circuits, read off the weights, as predictions of where heads attend and of what a removal does.

*Patterns.* The predicted scores of a sequence are the sum of the QK circuits (`qk_circuits`) at its tokens and
positions, as if the residual stream held the embeddings and nothing else. They are compared with the actual scores,
both without their mean over the keys that a query may attend to, which changes no pattern; and, after the softmax, with
the actual pattern. The agreement of scores can be carried by keys that get no attention, very low ones above all: read
`kl` beside it. Each part of the circuit is compared alone, too; `uniform` predicts nothing, for comparison. Queries
with a single key are left out.

*Removal.* The predicted change of the logits is minus what the head adds to them, read in two ways:

- `circuit`: through its OV circuit from the embeddings and its actual pattern:
  sum_j pattern_ij ((W_E[t_j] + W_pos[j]) W_V / sigma_j + b_V) W_O W_U / sigma_final;
- `direct`: from its actual output, z W_O W_U / sigma_final (direct logit attribution).

Under mean ablation the same read of the mean is added back. The actual change is that of the whole model when `z` is
replaced. Both are compared without their mean over the logits, which changes no prediction.

*Agreement* of predicted with actual numbers, whose mean is zero either way, which is also what no prediction says:

- `r2` = 1 - sum (actual - predicted)^2 / sum actual^2, for the prediction as it stands: below zero where it is worse
  than none;
- `correlation`, which forgives the size; `slope` of actual on predicted, 1 if the size is right;
- `share` = sum actual * predicted / sum actual^2: shares of parts add up to the share of their sum;
- `actual_rms`, the root mean square of the actual numbers, in their unit.

*Shows* how far the story that the weights tell about a head is the whole story. For patterns of the first layer only
the treatment of sigma can fail; with sigma as it is (`actual`) the agreement is exact. In later layers what is missing
is what earlier heads and MLPs wrote: composition. Of a removal, what `direct` predicts and `circuit` does not came into
the head's values from earlier layers. What even `direct` does not predict runs through later heads and MLPs, or through
sigma. *Does not show* that a part which predicts the pattern is what the head is needed for, nor which later part a
removal acts through; that takes path patching.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.full_circuits import ov_circuits, qk_circuits
from mnemoscope.analyses.head_circuits import composition, copying, offset_affinity, same_token_affinity, spectra
from mnemoscope.analyses.head_sigmas import (
    NORMALISATIONS,
    Normalisation,
    Sigmas,
    frozen_sigmas,
    normalisation_attrs,
    record_attention,
    sequence_weights,
)
from mnemoscope.analyses.head_weights import EffectiveWeights, effective_weights
from mnemoscope.analyses.residual import split_sequences_by_memory
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import make_removal
from mnemoscope.core.metrics import kl_divergence
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import (
    HookedModel,
    ModelLike,
    has_linear_attention,
    masked_token,
    position_kind,
    resolve_model,
)
from mnemoscope.core.site import Site
from mnemoscope.engine.block import visible_keys
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_at

_ALONE = tuple(product(("token", "pos", "bias"), ("token", "pos")))
PARTS = ("all", *(f"{query}_{key}" for query, key in _ALONE), "uniform")
"""The parts that scores are predicted from; those that all keys share are not among them."""
PredictedRemoval = Literal["zero", "mean"]
PREDICTED_REMOVALS: tuple[PredictedRemoval, ...] = ("zero", "mean")
READS = ("circuit", "direct")
_COMPARED = 30
"""Numbers that are in memory for a logit whose predicted and actual changes are compared."""
MAX_BYTES = 2**26
"""Memory for the sequences that are run at a time."""
NEGLIGIBLE = 1e-5
"""Root mean square of actual numbers up to which there is nothing to be predicted."""


@check_arguments
@torch.no_grad()
def predict_patterns(
    model: ModelLike,
    batch: Batch,
    *,
    normalisation: Normalisation = "linearised",
    at: Batch | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Agreement of the scores and patterns that the embeddings' QK circuits predict with the actual ones.

    The positions of the model are added to its residual stream, and sequences have at least two tokens; those of an
    enumeration count by their probability. `normalisation` says what the reads are divided by (see `head_sigmas`); for
    `linearised` sigma is frozen `at` these sequences, or at the batch itself.

    Returns:
        Over (layer, head, part): `r2`, `correlation` and `share` of the scores, `kl` (nats per query, from the actual
        to the predicted pattern) and `top_agreement` (share of the queries for which the predicted pattern's top key
        has the actual pattern's largest weight). Over (layer, head): `actual_rms` of the scores.

    Raises:
        InputError: The model is not supported, or the batch is too short.

    >>> ms.analyses.predict_patterns(model, batch).r2.dims
    ('layer', 'head', 'part')
    """
    model = resolve_model(model, batch=batch)
    one_of("normalisation", normalisation, NORMALISATIONS)
    weights = effective_weights(model, layers)
    if weights.W_pos is None:
        kind = position_kind(model)
        raise InputError(
            f"the model's positions are {kind}: not added to the residual stream, so that no circuit predicts scores; "
            "read the token circuits with qk_circuits(parts=['token'])"
        )
    if getattr(model.cfg, "use_local_attn", False):
        raise InputError("the model has local attention, which is not supported here; take one with global attention")
    if has_linear_attention(model):
        raise InputError("the model's attention has no softmax: its pattern is its scores; see qk_circuits")
    if len(batch) == 0 or batch.inputs.shape[1] < 2:
        raise InputError(f"batch must hold sequences of at least two tokens; got shape {tuple(batch.inputs.shape)}")
    at = batch if at is None else at
    frozen = None if normalisation == "actual" else frozen_sigmas(model, weights, normalisation, at)
    rows = split_sequences_by_memory(
        model, batch, 2 * len(PARTS) * model.cfg.n_heads * batch.inputs.shape[1] ** 2, MAX_BYTES
    )
    totals = torch.stack([_pattern_sums(model, weights, batch.select(some), frozen) for some in rows]).sum(0).cpu()
    kl, top, n_queries = totals[4:]
    measured = fit(totals[:4]) | {"kl": kl / n_queries, "top_agreement": top / n_queries}
    del measured["slope"]
    attrs = {
        "unit": "attention score",
        "kl_unit": "nats",
        "n": len(batch),
        **normalisation_attrs(weights, normalisation, at),
    }
    return _dataset(measured, {**weights.coords, "part": list(PARTS)}, attrs)


@check_arguments
@torch.no_grad()
def predict_removal(
    model: ModelLike,
    batch: Batch,
    *,
    reference: Batch | None = None,
    kinds: Sequence[PredictedRemoval] = PREDICTED_REMOVALS,
    normalisation: Normalisation = "linearised",
    at: Batch | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Agreement of the predicted with the actual change of the logits when a head is removed, at scored positions.

    Arguments as for `predict_patterns`. `reference` is what means are taken over, position by position and without
    padding, in sequences as long as the batch's (none: the batch itself); `kinds` are `zero`, `mean` or both.

    Returns:
        Over (kind, layer, head, read): `r2`, `correlation` and `slope` of the change of the logits; over (kind, layer,
        head): `actual_rms` of that change, in logits.

    Raises:
        InputError: The model is not supported, nothing is scored, or batch and reference differ in length.

    >>> ms.analyses.predict_removal(model, batch, kinds=["mean"]).r2.dims
    ('kind', 'layer', 'head', 'read')
    """
    model = resolve_model(model, batch=batch)
    one_of("normalisation", normalisation, NORMALISATIONS)
    for kind in kinds:
        one_of("an entry of kinds", kind, PREDICTED_REMOVALS)
    weights = effective_weights(model, layers)
    reference = batch if reference is None else reference
    if weights.W_pos is None:
        kind = position_kind(model)
        raise InputError(f"the model's positions must be added to the residual stream; they are {kind}")
    if not batch.scored.any():
        raise InputError("batch has no scored position, where logits could be compared; mark some in batch.scored")
    lengths = batch.inputs.shape[1], reference.inputs.shape[1]
    if len(reference) == 0 or lengths[0] != lengths[1]:
        raise InputError(f"reference must hold sequences as long as the batch's ({lengths[0]}); got {lengths[1]}")
    at, heads = batch if at is None else at, range(model.cfg.n_heads)
    frozen = None if normalisation == "actual" else frozen_sigmas(model, weights, normalisation, at)
    totals = torch.zeros(4, len(kinds), len(weights.layers), len(heads), len(READS), dtype=torch.double)
    means, recordings = _mean_reads(model, weights, reference, frozen), Recordings(model)
    source = Named(name="reference", value=reference)
    for rows in _rows(model, weights, batch, int(batch.scored.sum(1).max())):
        chunk, where = batch.select(rows), batch.scored[rows]
        weight = sequence_weights(chunk)[where.nonzero()[:, 0].cpu()]
        clean = run_at(model, chunk, [], where).double()
        reads, sigmas = _reads(model, weights, chunk, frozen)
        for (number, kind), (index, layer), head in product(enumerate(kinds), enumerate(weights.layers), heads):
            site = Site(kind="z", layer=layer, head=head)
            actual = (
                run_at(model, chunk, [make_removal(kind, site, source)], where, recordings=recordings).double() - clean
            )
            lost = (reads - means if kind == "mean" else reads)[:, index, :, :, head][:, where]
            read = lost @ (weights.W_O[index, head] @ weights.W_U) / sigmas.final.expand(where.shape)[where][:, None]
            totals[:, number, index, head] += _change_sums(actual, -read, weight)
    measured = fit(totals)
    del measured["share"]
    attrs = {"unit": "logit", "n": len(batch), "n_reference": len(reference)}
    coords = {"kind": list(kinds), **weights.coords, "read": list(READS)}
    return _dataset(measured, coords, {**attrs, **normalisation_attrs(weights, normalisation, at)})


def fit_sums(
    actual: Float[Tensor, "cell *rows"], predicted: Float[Tensor, "cell *rows"], weight: Float[Tensor, "cell *rows"]
) -> Float[Tensor, "4 cell"]:
    """Weighted sums of actual^2, predicted^2, actual * predicted and one; those of several batches add up."""
    pairs = (actual * actual, predicted * predicted, actual * predicted, torch.ones_like(actual))
    return torch.stack([(weight * values).flatten(1).sum(1) for values in pairs])


def fit(totals: Float[Tensor, "4 *cells"]) -> dict[str, Float[Tensor, "*cells"]]:
    """The five measures of agreement from `fit_sums`.

    NaN where the actual numbers are negligible (a root mean square of at most 1e-5); correlation and slope also where
    everything predicted is zero.
    """
    squares, predicted, products, n = totals
    rms = (squares / n).sqrt()
    actual = squares.masked_fill(rms <= NEGLIGIBLE, torch.nan)
    return {
        "r2": (2 * products - predicted) / actual,
        "correlation": products / (actual * predicted).sqrt(),
        "slope": products / predicted + 0 * actual,
        "share": products / actual,
        "actual_rms": rms,
    }


def _dataset(measured: dict[str, Tensor], coords: dict[str, list], attrs: dict[str, Any]) -> xr.Dataset:
    """Over all coordinates; `actual_rms`, which no prediction changes, without the last."""
    dims = tuple(coords)
    rms = measured.pop("actual_rms")[..., 0]
    variables = {name: (dims, to_numpy(values)) for name, values in measured.items()}
    return xr.Dataset({**variables, "actual_rms": (dims[:-1], to_numpy(rms))}, coords=coords, attrs=attrs)


def _pattern_sums(
    model: HookedModel, weights: EffectiveWeights, batch: Batch, frozen: Sigmas | None
) -> Float[Tensor, "7 layer head_index part"]:
    """Sums over the sequences, queries and keys of a chunk."""
    cache, sigmas = record_attention(model, weights, batch, ("q", "k"), frozen)
    n_pos, masked = batch.inputs.shape[1], masked_token(model)
    inputs = batch.inputs.to(weights.W_E.device)
    allowed = visible_keys(
        torch.arange(n_pos, device=inputs.device),
        n_pos,
        causal=model.cfg.attention_dir == "causal",
        padding=None if masked is None else inputs == masked,
    )
    count = sequence_weights(batch).to(weights.W_E)[:, None] * batch.real.to(weights.W_E)
    by_layer = []
    for index, layer in enumerate(weights.layers):
        query, key = (cache[f"blocks.{layer}.attn.hook_{kind}"].permute(2, 0, 1, 3) for kind in "qk")
        actual = query @ key.mT / weights.attn_scale[index]
        predicted = _predicted_scores(weights, index, batch, sigmas.layer[..., index])
        parts = [_agreement_sums(actual, predicted[part].expand_as(actual), allowed, count) for part in PARTS]
        by_layer.append(torch.stack(parts, -1))
    return torch.stack(by_layer, 1)


def _predicted_scores(
    weights: EffectiveWeights, index: int, batch: Batch, sigma: Float[Tensor, "#batch #pos"]
) -> dict[str, Float[Tensor, "head_index #batch #query #key"]]:
    """Scores from each part of the circuits of one layer, and from all of them."""
    assert weights.W_pos is not None
    embedded = {"token": weights.W_E[batch.inputs], "pos": weights.W_pos[None, : batch.inputs.shape[1]]}
    query, key = (
        {part: x / sigma[..., None] @ w[index][:, None] for part, x in embedded.items()}
        | {"bias": b[index][:, None, None]}
        for w, b in ((weights.W_Q, weights.b_Q), (weights.W_K, weights.b_K))
    )
    alone = {f"{q}_{k}": query[q] @ key[k].mT / weights.attn_scale[index] for q, k in _ALONE}
    total = torch.stack(torch.broadcast_tensors(*alone.values())).sum(0)
    return {"all": total, **alone, "uniform": torch.zeros_like(total)}


def _agreement_sums(
    actual: Float[Tensor, "head_index batch query key"],
    predicted: Float[Tensor, "head_index batch query key"],
    allowed: Bool[Tensor, "*batch_and_head query key"],
    count: Float[Tensor, "batch query"],
) -> Float[Tensor, "7 head_index"]:
    """The sums of `fit_sums`, then those of the KL divergence, of agreeing top keys, and of queries."""
    allowed = allowed if allowed.ndim == 2 else allowed[:, 0]
    open_queries = (allowed.sum(-1) > 1) * count
    weight = (open_queries[:, :, None] * allowed).expand_as(actual)
    centred_actual, centred_guess = (
        (scores - (scores * allowed).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)) * allowed
        for scores in (actual, predicted)
    )
    pattern = actual.masked_fill(~allowed, -torch.inf).softmax(-1)
    guess = predicted.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    top = pattern.gather(-1, guess.argmax(-1, keepdim=True))[..., 0] >= pattern.amax(-1) - 1e-6
    queries = [kl_divergence(pattern, guess), top.double(), torch.ones_like(guess[..., 0])]
    sums = torch.stack([(open_queries * values).sum((1, 2)) for values in queries])
    return torch.cat([fit_sums(centred_actual, centred_guess, weight), sums])


def _rows(model: HookedModel, weights: EffectiveWeights, batch: Batch, n_read: int) -> list[slice]:
    """Runs of sequences: logits at the positions that are read, and patterns and z of all heads, are held at a time."""
    n_pos, n_heads = batch.inputs.shape[1], len(weights.layers) * model.cfg.n_heads
    activations = n_pos * n_heads * (n_pos + 4 * weights.W_Q.shape[-1])
    return split_sequences_by_memory(model, batch, activations + n_read * _COMPARED * weights.W_U.shape[1], MAX_BYTES)


def _reads(
    model: HookedModel, weights: EffectiveWeights, batch: Batch, frozen: Sigmas | None
) -> tuple[Float[Tensor, "read layer batch pos head_index d_head"], Sigmas]:
    """The z of every head, predicted from the embeddings and actual; and what sigmas were used."""
    assert weights.W_pos is not None
    cache, sigmas = record_attention(model, weights, batch, ("pattern", "z"), frozen)
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
    total, n = torch.zeros((), dtype=torch.double), torch.zeros(())
    for chunk in (reference.select(rows) for rows in _rows(model, weights, reference, 0)):
        count = sequence_weights(chunk).to(weights.W_E)[:, None] * chunk.real.to(weights.W_E)
        reads, _ = _reads(model, weights, chunk, frozen)
        total = total + torch.einsum("bp,rlbphd->rlphd", count, reads)
        n = n.to(count) + count.sum(0)
    return (total / n.clamp(min=1e-30)[:, None, None])[:, :, None]


def _change_sums(
    actual: Float[Tensor, "place d_vocab"],
    predicted: Float[Tensor, "read place d_vocab"],
    weight: Float[Tensor, " place"],
) -> Float[Tensor, "4 read"]:
    change, guess = (values - values.mean(-1, keepdim=True) for values in (actual, predicted))
    return fit_sums(change.expand_as(guess), guess, weight.to(actual)[None, :, None].expand_as(guess)).cpu()


def read_circuits(model: ModelLike, batch: Batch, *, reference: Batch, seed: int = 0) -> dict[str, xr.Dataset]:
    """All reads of the OV and QK circuits of a model with positional embeddings and a small vocabulary.

    LayerNorm is linearised at `batch`, on which the reads are also compared with what happens. `reference` is for mean
    ablation, `seed` for the random baselines of composition.

    Returns:
        `qk`, `ov`: the full circuits by layer and head. `heads`: copying score (where outputs are tokens), affinities
        to the same token and to offsets, singular values and eigenvalues. `patterns`, `removal`: how well the reads
        predict the attention and the effect of removing a head. `composition`, with several layers: over pairs of
        heads.

    >>> sorted(ms.analyses.read_circuits(model, batch, reference=batch))
    ['heads', 'ov', 'patterns', 'qk', 'removal']
    """
    model = resolve_model(model, batch=batch, reference=reference)
    if model.cfg.d_vocab == model.cfg.d_vocab_out and not batch.classes:
        summaries = [copying(model), spectra(model).drop_vars("sign_score")]
    else:  # nothing is copied where outputs are no tokens
        summaries = [spectra(model, basis="residual").drop_vars("sign_score", errors="ignore")]
    affinities = {"same_token": same_token_affinity(model), "offset_affinity": offset_affinity(model)}
    heads = xr.merge([*summaries, xr.Dataset(affinities)], combine_attrs="drop_conflicts")
    results = {
        "qk": qk_circuits(model, normalisation="linearised", at=batch),
        "ov": ov_circuits(model, normalisation="linearised", at=batch),
        "heads": heads,
        "patterns": predict_patterns(model, batch),
        "removal": predict_removal(model, batch, reference=reference),
    }
    return results | ({"composition": composition(model, seed=seed)} if model.cfg.n_layers > 1 else {})
