"""How well the QK circuits, read off the weights, predict where heads attend.

The predicted scores of a sequence are the sum of the QK circuits (`circuits`) at its tokens and positions, that is,
as if the residual stream held the embeddings and nothing else. They are compared with the actual scores, both without
their mean over the keys that a query may attend to, which changes no pattern; and, after the softmax, with the actual
pattern.

The agreement of scores can be carried by keys that get no attention, very low ones above all: read `kl` beside it.

Each part of the circuit is compared alone, too; `uniform` predicts nothing, for comparison. Queries with a single key
are left out, since nothing is to be predicted there.

*Shows* how far the story that the weights tell about a head is the whole story. In the first layer only the treatment
of sigma can fail; with sigma as it is (`actual`) the agreement is exact. In later layers what is missing is what
earlier heads and MLPs wrote: composition.

*Does not show* that a part which predicts the pattern is what the head is needed for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
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
from mnemoscope.core.metrics import kl_divergence
from mnemoscope.core.protocols import HookedModel

_ALONE = (
    ("token", "token"),
    ("token", "pos"),
    ("pos", "token"),
    ("pos", "pos"),
    ("bias", "token"),
    ("bias", "pos"),
)
PARTS = ("all", *(f"{query}_{key}" for query, key in _ALONE), "uniform")
"""What scores are predicted from; the parts that all keys share are not among them."""
MAX_BYTES = 2**26
"""What the sequences that are run at a time may take up."""


@torch.no_grad()
def predict_patterns(
    model: HookedModel,
    batch: Batch,
    *,
    normalisation: Normalisation = "linearised",
    at: Batch | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Agreement of the scores and patterns that the embeddings' QK circuits predict with the actual ones.

    Args:
        model: Any hooked model whose positions are added to the residual stream.
        batch: Sequences of at least two tokens; those of an enumeration count by their probability.
        normalisation: What the predicted queries and keys are divided by, see `normalisation`.
        at: Where sigma is frozen, for `linearised`; none: at the batch itself.
        layers: Which layers; none: all.

    Returns:
        Over (layer, head, part): `r2`, `correlation` and `share` of the scores (see `fit`), `kl` (nats a query,
        from the actual to the predicted pattern) and `top_agreement` (share of the queries for which the predicted
        pattern's top key has the actual pattern's largest weight). Over (layer, head): `actual_rms` of the scores.

    Raises:
        InputError: The model is not supported, or the batch is too short.
    """
    one_of("normalisation", normalisation, NORMALISATIONS)
    weights = effective_weights(model, layers)
    _check(model, weights, batch)
    at = batch if at is None else at
    frozen = None if normalisation == "actual" else frozen_sigmas(model, weights, normalisation, at)
    scores = model.cfg.n_heads * batch.inputs.shape[1] ** 2
    rows = chunks(model, batch, 2 * len(PARTS) * scores, MAX_BYTES)
    totals = torch.stack([_totals(model, weights, batch.select(some), frozen) for some in rows]).sum(0).cpu()
    kl, top, n_queries = totals[4:]
    measured = fit(totals[:4])
    measured |= {"kl": kl / n_queries, "top_agreement": top / n_queries}
    by_part = ("r2", "correlation", "share", "kl", "top_agreement")
    variables: dict[str, Any] = {name: (("layer", "head", "part"), measured[name].numpy()) for name in by_part}
    variables["actual_rms"] = (("layer", "head"), measured["actual_rms"][..., 0].numpy())
    coords = {"layer": list(weights.layers), "head": np.arange(model.cfg.n_heads), "part": list(PARTS)}
    attrs = {"unit": "attention score", "kl_unit": "nats", "n": len(batch), **described(weights, normalisation, at)}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def _check(model: HookedModel, weights: EffectiveWeights, batch: Batch) -> None:
    if weights.W_pos is None:
        kind = model.cfg.positional_embedding_type
        raise InputError(
            f"the model's positions are {kind}: not added to the residual stream, so that no circuit predicts scores; "
            "read the token circuits with qk_circuits(parts=['token'])"
        )
    if getattr(model.cfg, "use_local_attn", False):
        raise InputError("the model has local attention, which is not supported here; take one with global attention")
    if len(batch) == 0 or batch.inputs.shape[1] < 2:
        raise InputError(f"batch must hold sequences of at least two tokens; got shape {tuple(batch.inputs.shape)}")


def _totals(
    model: HookedModel, weights: EffectiveWeights, batch: Batch, frozen: Sigmas | None
) -> Float[Tensor, "7 layer head_index part"]:
    """Sums over the sequences, queries and keys of a chunk."""
    cache = recorded(model, weights, batch, ("q", "k"))
    sigmas = actual_sigmas(model, weights, cache) if frozen is None else frozen
    n_pos = batch.inputs.shape[1]
    allowed = torch.ones(n_pos, n_pos, dtype=torch.bool, device=weights.W_E.device)
    if model.cfg.attention_dir == "causal":
        allowed = allowed.tril()
    count = row_weight(batch).to(weights.W_E)
    by_layer = []
    for index, layer in enumerate(weights.layers):
        query, key = (cache[f"blocks.{layer}.attn.hook_{kind}"].permute(2, 0, 1, 3) for kind in "qk")
        actual = query @ key.mT / weights.attn_scale[index]
        predicted = _predicted(weights, index, batch, sigmas.layer[..., index])
        parts = [_compared(actual, predicted[part].expand_as(actual), allowed, count) for part in PARTS]
        by_layer.append(torch.stack(parts, -1))
    return torch.stack(by_layer, 1)


def _predicted(
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


def _compared(
    actual: Float[Tensor, "head_index batch query key"],
    predicted: Float[Tensor, "head_index batch query key"],
    allowed: Bool[Tensor, "query key"],
    count: Float[Tensor, " batch"],
) -> Float[Tensor, "7 head_index"]:
    """The sums of `fit_sums`, then those of the KL divergence, of agreeing top keys, and of queries."""
    open_queries = (allowed.sum(-1) > 1) * count[:, None]
    weight = (open_queries[:, :, None] * allowed).expand_as(actual)
    scores = fit_sums(_centred(actual, allowed), _centred(predicted, allowed), weight)
    pattern = actual.masked_fill(~allowed, -torch.inf).softmax(-1)
    guess = predicted.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    top = pattern.gather(-1, guess.argmax(-1, keepdim=True))[..., 0] >= pattern.amax(-1) - 1e-6
    queries = [kl_divergence(pattern, guess), top.double(), torch.ones_like(guess[..., 0])]
    return torch.cat([scores, torch.stack([(open_queries * values).sum((1, 2)) for values in queries])])


def _centred(
    scores: Float[Tensor, "head_index batch query key"], allowed: Bool[Tensor, "query key"]
) -> Float[Tensor, "head_index batch query key"]:
    """Without the mean over the keys that the query may attend to, and zero at the others."""
    mean = (scores * allowed).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
    return (scores - mean) * allowed
