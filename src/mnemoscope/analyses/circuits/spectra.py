"""Singular values, eigenvalues and singular vectors of the circuits of every head.

The token circuits are W_E W_V W_O W_U (OV) and W_E W_Q W_K^T W_E^T / attn_scale (QK), with LayerNorm folded in and
sigma left out; those of the residual stream are W_V W_O and W_Q W_K^T / attn_scale themselves. They are never
multiplied out (`core.matrices`), so that vocabularies may be large.

A constant that all logits of a source token share, or all keys of a query, changes no prediction and no pattern. The
token circuits are therefore taken with rows centred. Without that, eigenvalues would depend on such constants.

The sign score is the sum of the eigenvalues over the sum of their moduli. Of the OV circuit it is the copying score of
Elhage et al. 2021: 1 if the head raises what it attends to, in every direction, -1 if it lowers it. Of the QK circuit
it says whether tokens attend to their like (1) or avoid them (-1).

*Shows* which directions a head can read and write, and how strongly.

*Does not show* which of them occur. A positive score does not mean that the head copies every token: eigenvectors
need not be tokens (compare `copying`).
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.weights import EffectiveWeights, chosen_indices, effective_weights
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import factored_eigenvalues, factored_singular_values, factored_svd, sign_score
from mnemoscope.core.protocols import HookedModel

Circuit = Literal["OV", "QK"]
Basis = Literal["token", "residual"]
CIRCUITS: tuple[Circuit, ...] = ("OV", "QK")
BASES: tuple[Basis, ...] = ("token", "residual")


@torch.no_grad()
def spectra(
    model: HookedModel,
    *,
    basis: Basis = "token",
    centred: bool = True,
    tokens: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Singular values and eigenvalues of the OV and QK circuits.

    For `basis='token'` input and output vocabulary are the same, and `tokens` may restrict it; else circuits stay
    within the residual stream. `centred` takes the mean of each row from token circuits. Raises InputError where the
    model is not supported, or there is no such token or layer.

    Returns:
        Over (circuit, layer, head, index): `singular_value`, descending, and `eigenvalue` (complex), by descending
        modulus; the circuits have rank at most d_head. Over (circuit, layer, head): `sign_score`, NaN for a circuit
        that is zero.
    """
    one_of("basis", basis, BASES)
    weights = effective_weights(model, layers)
    chosen = _tokens(weights, tokens) if basis == "token" else None
    read = {"singular_value": factored_singular_values, "eigenvalue": factored_eigenvalues}
    cells: dict[str, list[Tensor]] = {name: [] for name in read}
    for circuit, index in product(CIRCUITS, range(len(weights.layers))):
        left, right = factors(weights, circuit, index, chosen, centred)
        for name, values in read.items():
            cells[name].append(values(left, right).cpu())
    stacked = {name: torch.stack(both).unflatten(0, (len(CIRCUITS), -1)) for name, both in cells.items()}
    dims = ("circuit", "layer", "head")
    return xr.Dataset(
        {
            **{name: ((*dims, "index"), array.numpy()) for name, array in stacked.items()},
            "sign_score": (dims, sign_score(stacked["eigenvalue"]).numpy()),
        },
        coords={"circuit": list(CIRCUITS), **weights.coords},
        attrs=_attrs(weights, chosen, centred),
    )


@torch.no_grad()
def singular_tokens(
    model: HookedModel,
    *,
    circuit: Circuit,
    layer: int,
    head: int,
    n_vectors: int = 3,
    n_tokens: int = 10,
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """The leading singular vectors of a token circuit, read in tokens on both sides.

    Input and output vocabulary of the model are the same; `tokens` restricts both. `OV` goes from source tokens (left)
    to logits (right), `QK` from query tokens to key tokens. Singular vectors come from the largest singular value on,
    their tokens from the largest absolute weight on.

    Returns:
        `singular_value` (vector); `token` and `weight` (vector, side, rank), side `left` or `right`: a source with
        left weight a raises a logit with right weight b by a * b * singular value. The sign that both sides share is
        such that the largest left weight is positive. Rows are centred, as in `spectra`.

    Raises:
        InputError: There is no such circuit, layer, head, token or that many vectors.
    """
    one_of("circuit", circuit, CIRCUITS)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    in_range("head", head, 0, model.cfg.n_heads - 1)
    weights = effective_weights(model, [layer])
    chosen = _tokens(weights, tokens)
    left, s, right = (side[head] for side in factored_svd(*factors(weights, circuit, 0, chosen, centred=True)))
    in_range("n_vectors", n_vectors, 1, len(s))
    in_range("n_tokens", n_tokens, 1, len(chosen))
    vectors = torch.stack([left, right]).mT[:, :n_vectors]
    order = vectors.abs().argsort(-1, descending=True)[..., :n_tokens]
    weight = vectors.gather(-1, order)
    weight = (weight * weight[:1, :, :1].sign()).transpose(0, 1).cpu()
    token = torch.tensor(chosen)[order.transpose(0, 1).cpu()]
    dims = ("vector", "side", "rank")
    return xr.Dataset(
        {
            "singular_value": ("vector", s[:n_vectors].cpu().numpy()),
            "token": (dims, token.numpy()),
            "weight": (dims, weight.numpy()),
        },
        coords={"side": ["left", "right"]},
        attrs={"circuit": circuit, "component": f"L{layer}H{head}", **_attrs(weights, chosen, True)},
    )


def factors(
    weights: EffectiveWeights, circuit: Circuit, index: int, tokens: Sequence[int] | None, centred: bool
) -> tuple[Float[Tensor, "head_index row rank"], Float[Tensor, "head_index rank column"]]:
    """Left and right factor of a circuit of one layer: between tokens, or of the residual stream without them."""
    qk = circuit == "QK"
    left, right = (w[index] for w in ((weights.W_Q, weights.W_K) if qk else (weights.W_V, weights.W_O)))
    right = right.mT / weights.attn_scale[index] if qk else right
    if tokens is None:
        return left, right
    token = weights.W_E[tokens]
    right = right @ (token.T if qk else weights.W_U[:, tokens])
    return token @ left, right - right.mean(-1, keepdim=True) if centred else right


def _tokens(weights: EffectiveWeights, tokens: Sequence[int] | None) -> list[int]:
    d_in, d_out = len(weights.W_E), weights.W_U.shape[1]
    if d_in != d_out:
        raise InputError(
            f"the model must have one vocabulary for input and output; it has {d_in} and {d_out} tokens; use "
            "spectra(basis='residual') or ov_circuits"
        )
    return chosen_indices("tokens", tokens, d_in)


def _attrs(weights: EffectiveWeights, tokens: Sequence[int] | None, centred: bool) -> dict[str, str | int]:
    result: dict[str, str | int] = {"weights": weights.description, "normalisation": "sigma left out"}
    if tokens is not None:
        result |= {"n_tokens": len(tokens), "rows": "centred" if centred else "as they are"}
    return result
