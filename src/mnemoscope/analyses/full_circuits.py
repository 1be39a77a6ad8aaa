"""The full QK and OV circuits of heads: what tokens and positions add to attention scores and to logits.

With x = W_E[token] + W_pos[pos] in place of the residual stream, the score of a query i and a key j falls into nine
parts: (W_E[t_i] + W_pos[i] + bias) W_Q W_K^T (W_E[t_j] + W_pos[j] + bias)^T / attn_scale. The output of a head in the
logits falls into three: (W_E[t_j] + W_pos[j] + bias) W_V W_O W_U, times the attention to j. Here `bias` stands for b_Q,
b_K and b_V themselves (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). Weights are folded
(`analyses.head_weights`); the division by sigma is treated as named (`analyses.head_sigmas`).

*Shows*, for the first layer, all there is: the parts add up to the score, and weighted with the pattern to the head's
direct contribution to the logits (once divided by the sigmas). *Does not show*, for later layers, what earlier heads
and MLPs contribute, nor what the head is needed for.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.head_sigmas import Frozen, frozen_sigmas, normalisation_attrs
from mnemoscope.analyses.head_weights import EffectiveWeights, check_indices, effective_weights
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, position_kind, resolve_model

Source = Literal["token", "pos"]
SOURCES: tuple[Source, ...] = ("token", "pos")
MAX_ENTRIES = 2**24
"""Numbers in one result (128 MiB)."""
_Sources = dict[str, tuple[list[int], Float[Tensor, "source d_model"]]]


@check_arguments
@torch.no_grad()
def qk_circuits(
    model: ModelLike,
    *,
    normalisation: Frozen = "folded",
    at: Batch | None = None,
    parts: Sequence[Source] = SOURCES,
    tokens: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """The addition of each part of a query and of a key to the attention score.

    `folded` leaves sigma out; `linearised` freezes it at its mean over `at`. Without positions in the residual stream
    only the part `token` can be read. `tokens`, `positions` and `layers` restrict the read. Raises InputError where the
    model is not supported, its positions are wanted and are no matrix, an index is out of range, or the result would
    have more than 2^24 numbers.

    Returns variables `<query part>_<key part>` for the parts token, pos and bias, over (layer, head) and, as they have
    them, (query_token or query_pos, key_token or key_pos), in attention scores: divided by attn_scale, before the
    softmax. `sigma` (layer) is what both sides were divided by. In a rotary model token_token is at one position.

    >>> ms.analyses.qk_circuits(model).token_token.dims
    ('layer', 'head', 'query_token', 'key_token')
    """
    model = resolve_model(model)
    weights = effective_weights(model, layers)
    sources = _sources(weights, model, parts, tokens, positions)
    n_heads = weights.W_Q.shape[0] * weights.W_Q.shape[1]
    _check_size(n_heads * sum(len(chosen) for chosen, _ in sources.values()) ** 2)
    sigma = frozen_sigmas(model, weights, normalisation, at).layer[0, 0]
    reads = {
        side: {
            **{part: embedding @ w / sigma[:, None, None, None] for part, (_, embedding) in sources.items()},
            "bias": bias[:, :, None],
        }
        for side, w, bias in (("query", weights.W_Q, weights.b_Q), ("key", weights.W_K, weights.b_K))
    }
    variables = {}
    for query, key in product((*sources, "bias"), repeat=2):
        scores = reads["query"][query] @ reads["key"][key].mT / weights.attn_scale[:, None, None, None]
        array = xr.DataArray(to_numpy(scores), dims=("layer", "head", f"query_{query}", f"key_{key}"))
        variables[f"{query}_{key}"] = array.squeeze([name for name in array.dims if str(name).endswith("bias")])
    coords = {f"{side}_{part}": chosen for side in ("query", "key") for part, (chosen, _) in sources.items()}
    return _dataset(weights, variables, coords, sigma).assign_attrs(
        unit="attention score (divided by attn_scale, before the softmax)",
        **normalisation_attrs(weights, normalisation, at),
    )


@check_arguments
@torch.no_grad()
def ov_circuits(
    model: ModelLike,
    *,
    normalisation: Frozen = "folded",
    at: Batch | None = None,
    parts: Sequence[Source] = SOURCES,
    tokens: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    logits: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """The addition of a head to the logits when it attends, with weight one, to a token, a position, and by its bias.

    Arguments and errors as for `qk_circuits`; `logits` chooses among the outputs.

    Returns `token_logit` (layer, head, source_token, logit), `pos_logit` (layer, head, source_pos, logit), `bias_logit`
    (layer, head, logit): b_V through W_O and W_U. In logits, up to a constant that all logits of a source may share.
    `sigma` (layer) is what the source was divided by (the bias is not), attribute `sigma_final` what everything was.

    >>> ms.analyses.ov_circuits(model).token_logit.dims
    ('layer', 'head', 'source_token', 'logit')
    """
    model = resolve_model(model)
    weights = effective_weights(model, layers)
    sources = _sources(weights, model, parts, tokens, positions)
    outputs = check_indices("logits", logits, weights.W_U.shape[1])
    n_heads = weights.W_Q.shape[0] * weights.W_Q.shape[1]
    _check_size(n_heads * len(outputs) * sum(len(chosen) for chosen, _ in sources.values()))
    sigmas = frozen_sigmas(model, weights, normalisation, at)
    sigma, final = sigmas.layer[0, 0], sigmas.final[0, 0]
    written = weights.W_O @ weights.W_U[:, outputs] / final
    variables = {}
    for part, (_, embedding) in sources.items():
        logit = embedding @ weights.W_V / sigma[:, None, None, None] @ written
        dims = ("layer", "head", f"source_{part}", "logit")
        variables[f"{part}_logit"] = xr.DataArray(to_numpy(logit), dims=dims)
    bias = (weights.b_V[:, :, None] @ written)[:, :, 0]
    variables["bias_logit"] = xr.DataArray(to_numpy(bias), dims=("layer", "head", "logit"))
    coords = {f"source_{part}": chosen for part, (chosen, _) in sources.items()} | {"logit": outputs}
    return _dataset(weights, variables, coords, sigma).assign_attrs(
        unit="logit, up to a constant", sigma_final=float(final), **normalisation_attrs(weights, normalisation, at)
    )


def _sources(
    weights: EffectiveWeights,
    model: HookedModel,
    parts: Sequence[Source],
    tokens: Sequence[int] | None,
    positions: Sequence[int] | None,
) -> _Sources:
    for part in parts:
        one_of("an entry of parts", part, SOURCES)
    result: _Sources = {}
    if "token" in parts:
        chosen = check_indices("tokens", tokens, len(weights.W_E))
        result["token"] = (chosen, weights.W_E[chosen])
    if "pos" in parts:
        if weights.W_pos is None:
            how = f"{position_kind(model)}: not added to the residual stream"
            raise InputError(f"the model's positions are {how}, so that they have no circuits; pass parts=['token']")
        chosen = check_indices("positions", positions, len(weights.W_pos))
        result["pos"] = (chosen, weights.W_pos[chosen])
    return result


def _check_size(n_entries: int) -> None:
    if n_entries > MAX_ENTRIES:
        way_out = "choose tokens=, positions= or layers=, or read them factored (spectra, singular_tokens)"
        raise InputError(f"full circuits have at most {MAX_ENTRIES:,} entries; these have {n_entries:,}; {way_out}")


def _dataset(
    weights: EffectiveWeights,
    variables: dict[str, xr.DataArray],
    coords: dict[str, list[int]],
    sigma: Float[Tensor, " layer"],
) -> xr.Dataset:
    return xr.Dataset(
        {**variables, "sigma": ("layer", to_numpy(sigma))},
        coords={**weights.coords, **coords},
        attrs={"complete_for": "layer 0; in later layers the direct path from the embeddings only"},
    )
