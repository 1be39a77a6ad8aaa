"""The circuits of each head in a few numbers: copying, attention to the same token, and to an offset.

- `copying`: the copying score (`spectra`) of the OV token circuit, and how often a token's own logit is the one that it
  changes most.
- `same_token_affinity`: how much higher a key scores if it holds the query's token.
- `offset_affinity`: how much higher a key scores if it lies a number of positions back; 1 is the previous position.

All are in the units of the circuits with sigma left out, and free of constants that change no prediction and no
pattern. Affinities are a head's own: a head that matches tokens which *another* head wrote (an induction head) shows
it in `composition.composed_circuit` instead.

They are reads of the weights. Whether the head behaves so on real sequences: `prediction`; whether that is
what it is needed for: an intervention.

`read_circuits` puts all analyses of circuits together.
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.composition import composition
from mnemoscope.analyses.circuits.full import ov_circuits, qk_circuits
from mnemoscope.analyses.circuits.prediction import predict_patterns, predict_removal
from mnemoscope.analyses.circuits.spectra import factors, spectra
from mnemoscope.analyses.circuits.weights import chosen_indices, effective_weights
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel

CHUNK = 1024
"""Source tokens whose logits are held at a time."""
EXTREMES = ("largest", "smallest")
ALONG = ("logit", "source_token")


@torch.no_grad()
def copying(
    model: HookedModel, *, tokens: Sequence[int] | None = None, layers: Sequence[int] | None = None
) -> xr.Dataset:
    """The degree to which a head raises (or lowers) the logit of the token that it attends to.

    Input and output vocabulary of the model are the same. Time grows with the square of the number of tokens, memory
    does not. Errors are those of `spectra`.

    Returns:
        Over (layer, head): `copying_score`, the sum of the eigenvalues of the OV token circuit over the sum of their
        moduli.
        Over (layer, head, along, extreme): `own`, the share of tokens whose own entry in the circuit is strictly the
        largest, or the smallest: among all logits of that source token (`logit`: what attending to it does), or among
        all source tokens for that logit (`source_token`: what raises it). By chance 1 / n_tokens. Rows are centred.
    """
    scores = spectra(model, tokens=tokens, layers=layers)
    weights = effective_weights(model, layers)
    chosen = chosen_indices("tokens", tokens, len(weights.W_E))
    own = torch.stack(
        [_own_extremes(*factors(weights, "OV", index, chosen, centred=True)) for index in range(len(weights.layers))]
    )
    return xr.Dataset(
        {
            "copying_score": scores.sign_score.sel(circuit="OV", drop=True),
            "own": (("layer", "head", "along", "extreme"), own.cpu().numpy()),
        },
        coords={"along": list(ALONG), "extreme": list(EXTREMES)},
        attrs={**scores.attrs, "chance": 1 / len(chosen)},
    )


def _own_extremes(
    left: Float[Tensor, "head_index token rank"], right: Float[Tensor, "head_index rank token"]
) -> Float[Tensor, "head_index 2 2"]:
    """Shares over (along, extreme) of the tokens whose diagonal entry is the extreme one."""
    by_extreme = []
    for sign in (1, -1):
        diagonal = sign * torch.einsum("htr,hrt->ht", left, right)
        above_row, column = [], torch.full_like(diagonal, -torch.inf)
        for start in range(0, left.shape[1], CHUNK):
            rows = sign * left[:, start : start + CHUNK] @ right
            here = torch.arange(rows.shape[1], device=rows.device)
            rows[:, here, start + here] = -torch.inf
            above_row.append(diagonal[:, start : start + CHUNK] > rows.amax(-1))
            column = torch.maximum(column, rows.amax(1))
        both = torch.stack([torch.cat(above_row, 1), diagonal > column], 1)
        by_extreme.append(both.double().mean(-1))
    return torch.stack(by_extreme, -1)


@torch.no_grad()
def same_token_affinity(
    model: HookedModel, *, tokens: Sequence[int] | None = None, layers: Sequence[int] | None = None
) -> xr.DataArray:
    """Mean score that a query token gives to itself as a key, minus the mean over the other tokens.

    Over (layer, head), in attention scores: the diagonal of QK's token_token circuit against the rest, which are not
    multiplied out. Raises InputError where the model is not supported, or fewer than two tokens are chosen.
    """
    weights = effective_weights(model, layers)
    chosen = chosen_indices("tokens", tokens, len(weights.W_E))
    n = len(chosen)
    if n < 2:
        raise InputError(f"tokens must name at least two, to be compared; got {chosen}")
    token = weights.W_E[chosen]
    own = (weights.W_Q * (token.T @ token @ weights.W_K)).sum((-2, -1))
    rest = ((token.sum(0) @ weights.W_Q) * (token.sum(0) @ weights.W_K)).sum(-1) - own
    return xr.DataArray(
        ((own / n - rest / (n * (n - 1))) / weights.attn_scale[:, None]).cpu().numpy(),
        dims=("layer", "head"),
        coords=weights.coords,
        attrs={"unit": "attention score", "weights": weights.description, "n_tokens": n},
    )


@torch.no_grad()
def offset_affinity(
    model: HookedModel, *, n_pos: int | None = None, layers: Sequence[int] | None = None
) -> xr.DataArray:
    """Mean score that a position gives to the one `offset` places back, minus the mean over its other keys.

    The model has causal attention and adds positions to its residual stream. The first `n_pos` of them count (none: the
    whole context). Raises InputError where the model is not supported, or `n_pos` is out of range.

    Returns QK's pos_pos circuit over (layer, head, offset), offsets from 0 to `n_pos` - 1, in attention scores. Means
    are over the queries that have such a key and another one. High offsets rest on few queries: n_pos - offset.
    """
    weights = effective_weights(model, layers)
    if weights.W_pos is None or model.cfg.attention_dir != "causal":
        raise InputError("the model must have causal attention and positions that are added to the residual stream")
    n_ctx = len(weights.W_pos)
    n_pos = n_ctx if n_pos is None else n_pos
    if not 2 <= n_pos <= n_ctx:
        raise InputError(f"n_pos must be from 2 to the model's context of {n_ctx}; got {n_pos}")
    position = weights.W_pos[:n_pos]
    scores = (position @ weights.W_Q) @ (position @ weights.W_K).mT / weights.attn_scale[:, None, None, None]
    n_keys = torch.arange(1, n_pos + 1, device=scores.device)
    total = scores.tril().sum(-1, keepdim=True)
    against_others = (scores - (total - scores) / (n_keys[:, None] - 1))[..., 1:, :]  # the first has one key only
    means = [against_others.diagonal(1 - offset, -2, -1).mean(-1) for offset in range(n_pos)]
    return xr.DataArray(
        torch.stack(means, -1).cpu().numpy(),
        dims=("layer", "head", "offset"),
        coords={**weights.coords, "offset": list(range(n_pos))},
        attrs={"unit": "attention score", "weights": weights.description, "n_pos": n_pos},
    )


def read_circuits(model: HookedModel, batch: Batch, *, reference: Batch, seed: int = 0) -> dict[str, xr.Dataset]:
    """All reads of the OV and QK circuits of a model with positional embeddings.

    The vocabulary must be small enough for full circuits. LayerNorm is linearised at `batch`, on which the reads are
    also compared with what happens. `reference` is for mean ablation, `seed` for the random baselines of composition.

    Returns:
        `qk`, `ov`: the full circuits by layer and head. `heads`: copying score, affinities to the same token and to
        offsets, singular values and eigenvalues. `patterns`, `removal`: how well the reads predict the attention and
        the effect of removing a head. `composition`, with several layers: over pairs of heads.
    """
    summaries = [copying(model), spectra(model).drop_vars("sign_score")]
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
