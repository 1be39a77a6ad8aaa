"""OV and QK circuits in a few numbers: spectra, copying, affinities, and the composition of heads.

*Spectra.* The token circuits are W_E W_V W_O W_U (OV) and W_E W_Q W_K^T W_E^T / attn_scale (QK), with LayerNorm folded
in and sigma left out; those of the residual stream are W_V W_O and W_Q W_K^T / attn_scale themselves. They are never
multiplied out (`core.matrices`), so that vocabularies may be large. A constant that all logits of a source token share,
or all keys of a query, changes no prediction and no pattern; token circuits are therefore taken with rows centred. The
sign score is the sum of the eigenvalues over the sum of their moduli. Of the OV circuit it is the copying score of
Elhage et al. 2021: 1 if the head raises what it attends to, in every direction, -1 if it lowers it. Of the QK circuit
it says whether tokens attend to their like (1) or avoid them (-1). A positive score does not mean that the head copies
every token, since eigenvectors need not be tokens (compare `copying`).

*Affinities* say how much higher a key scores if it holds the query's token (`same_token_affinity`), or lies a number of
positions back (`offset_affinity`). They are a head's own: an induction head, which matches tokens that *another* head
wrote, shows it in `composed_circuit` instead.

*Composition*: the strength with which heads read, through Q, K or V, what heads of earlier layers write. The score of a
writer with W_OV = W_V W_O and a reader is |W_OV B| / (|W_OV| |B|) in Frobenius norms. Here B is W_Q W_K^T for
Q-composition, W_K W_Q^T for K-composition and the reader's own W_V W_O for V-composition. Any two matrices overlap a
little. The baseline keeps the singular values of both and turns one of them by a random rotation of the residual stream
(of its centred part where the model has LayerNorm): the mean square of the score is then 1 / d_model
(1 / (d_model - 1)) whatever the singular values, and its spread depends on them. A large score of matrices that both
favour a direction that everything shares (a common bias, say) is no circuit. A score inside the baseline does not
exclude composition through a few directions.

All are reads of the weights. Whether a head behaves so on real sequences says `head_predictions`; whether that is what
it is needed for takes an intervention.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.head_weights import (
    EffectiveWeights,
    check_indices,
    effective_weights,
)
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import factored_eigenvalues, factored_singular_values, factored_svd, sign_score, to_numpy
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.engine.block import visible_keys

CompositionKind = Literal["Q", "K", "V"]
COMPOSITION_KINDS: tuple[CompositionKind, ...] = ("Q", "K", "V")


@check_arguments
@torch.no_grad()
def composition(
    model: ModelLike, *, through: Sequence[CompositionKind] = COMPOSITION_KINDS, n_random: int = 500, seed: int = 0
) -> xr.Dataset:
    """Composition scores of all pairs of heads in different layers, beside those of randomly turned matrices.

    Random rotations, the same for all pairs, come from the seed's stream `rotations`. Raises InputError for a model of
    one layer, or one that is not supported.

    Returns:
        Over (through, writer, reader), labels `L0H1`: `score`; `baseline_mean` and `baseline_sd` of the random
        scores; `z`, the distance from their mean in standard deviations; `share_below`, the share of the random scores
        that are smaller, as (k + 1/2) / (n_random + 1). NaN where the reader is not in a later layer and where one
        of the matrices is zero.

    >>> deep = ms.constructed.induction(8, 12, noise=0.05)
    >>> ms.analyses.composition(deep, n_random=10).z.dims
    ('through', 'writer', 'reader')
    """
    model = resolve_model(model)
    in_range("n_random", n_random, 2, float("inf"))
    for letter in through:
        one_of("an entry of through", letter, COMPOSITION_KINDS)
    weights = effective_weights(model)
    n_layers, n_heads = weights.W_Q.shape[:2]
    if n_layers < 2:
        raise InputError("composition is between heads of different layers; the model must have two layers, it has 1")
    corners = _random_corners(weights, n_random, seed)
    results = [_all_pairs(weights, letter, corners) for letter in through]
    layer = torch.arange(n_layers).repeat_interleave(n_heads)
    apart = layer[:, None] < layer
    dims = ("through", "writer", "reader")
    labels = [f"L{n}H{h}" for n in range(n_layers) for h in range(n_heads)]
    return xr.Dataset(
        {
            name: (dims, to_numpy(torch.stack([result[name].cpu().where(apart, torch.nan) for result in results])))
            for name in results[0]
        },
        coords={"through": list(through), "writer": labels, "reader": labels},
        attrs={
            "unit": "share of the product of the Frobenius norms",
            "weights": weights.description,
            "baseline": "same singular values, one matrix turned by a random rotation",
            "baseline_rms": _d_seen(weights) ** -0.5,
            "n_random": n_random,
        },
    )


@check_arguments
@torch.no_grad()
def composed_circuit(
    model: ModelLike,
    *,
    writer: tuple[int, int],
    reader: tuple[int, int],
    through: CompositionKind,
    tokens: Sequence[int] | None = None,
) -> xr.DataArray:
    """The token circuit of a path through two heads: the reader's, where one side has gone through the writer.

    W_E W_OV B^T W_E^T for K-composition, and so on: the score that a query token gives to a key at whose place the
    writer put, with attention one, what it makes of a token (K; Q likewise with the query's place), or the logits of
    the virtual head (V). In an induction head it says whether a token attends to places that follow that token.

    `writer` and `reader` are (layer, head). Raises InputError where a head does not exist, the reader is not in a later
    layer, or there are more than 4096 tokens. Returns the circuit over (query_token, key_token) in attention scores, or
    (source_token, logit) in logits; sigmas are left out.

    >>> deep = ms.constructed.induction(8, 12)
    >>> ms.analyses.composed_circuit(deep, writer=(0, 0), reader=(1, 0), through="K").dims
    ('query_token', 'key_token')
    """
    model = resolve_model(model)
    one_of("through", through, COMPOSITION_KINDS)
    for name, (layer, head) in (("writer", writer), ("reader", reader)):
        in_range(f"the layer of {name}", layer, 0, model.cfg.n_layers - 1)
        in_range(f"the head of {name}", head, 0, model.cfg.n_heads - 1)
    if reader[0] <= writer[0]:
        raise InputError(f"reader must be in a later layer than the writer's, {writer[0]}; got {reader[0]}")
    weights = effective_weights(model, [writer[0], reader[0]])
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    in_range("the number of tokens", len(chosen), 1, 4096)
    token, (early, late) = weights.W_E[chosen], ((0, writer[1]), (1, reader[1]))
    moved = token @ weights.W_V[early] @ weights.W_O[early]
    if through == "V":
        circuit = moved @ weights.W_V[late] @ weights.W_O[late] @ weights.W_U[:, chosen]
        dims, unit = ("source_token", "logit"), "logit, up to a constant"
    else:
        query, key = (moved, token) if through == "Q" else (token, moved)
        circuit = query @ weights.W_Q[late] @ (key @ weights.W_K[late]).T / weights.attn_scale[1]
        dims, unit = ("query_token", "key_token"), "attention score (divided by attn_scale, before the softmax)"
    coords = dict.fromkeys(dims, chosen)
    attrs = {"unit": unit, "through": through, "weights": weights.description, "normalisation": "sigmas left out"}
    return xr.DataArray(to_numpy(circuit), dims=dims, coords=coords, attrs=attrs)


def _d_seen(weights: EffectiveWeights) -> int:
    """Dimensions of the residual stream in which heads write and read."""
    return weights.W_E.shape[1] - weights.centred


def _random_corners(weights: EffectiveWeights, n: int, seed: int) -> Float[Tensor, "random rank rank"]:
    """Squares of the overlap of two random frames."""
    width = _d_seen(weights)
    rank = min(width, weights.W_Q.shape[-1])
    draws = torch.randn(n, width, rank, generator=generator(seed, "rotations"), dtype=torch.double)
    return torch.linalg.qr(draws).Q[:, :rank].square().to(weights.W_E.device)


def _all_pairs(
    weights: EffectiveWeights, through: CompositionKind, corners: Float[Tensor, "random rank rank"]
) -> dict[str, Float[Tensor, "writer reader"]]:
    """Scores and baselines of all pairs, those in the wrong order included."""
    output, value = weights.W_O.flatten(0, 1), weights.W_V.flatten(0, 1)
    query, key = weights.W_Q.flatten(0, 1), weights.W_K.flatten(0, 1)
    first, second = {"Q": (query, key.mT), "K": (key, query.mT), "V": (value, output)}[through]
    written = torch.linalg.qr(value).R @ output
    read = first @ torch.linalg.qr(second.mT).R.mT
    norms = torch.linalg.matrix_norm(written)[:, None] * torch.linalg.matrix_norm(read)
    score = torch.stack([torch.linalg.matrix_norm(one @ read) for one in written]) / norms
    rank = corners.shape[-1]
    squares = [factored_singular_values(a, b)[:, :rank].square() for a, b in ((value, output), (first, second))]
    random = torch.einsum("wx,nxy,ry->nwr", squares[0], corners, squares[1]).sqrt() / norms
    smaller = (random < score).sum(0) + (random == score).sum(0) / 2
    mean, sd = random.mean(0), random.std(0)
    below = ((smaller + 0.5) / (len(random) + 1)).where(~score.isnan(), torch.nan)
    return {"score": score, "baseline_mean": mean, "baseline_sd": sd, "z": (score - mean) / sd, "share_below": below}


CircuitKind = Literal["OV", "QK"]
Basis = Literal["token", "residual"]
CIRCUIT_KINDS: tuple[CircuitKind, ...] = ("OV", "QK")
BASES: tuple[Basis, ...] = ("token", "residual")


@check_arguments
@torch.no_grad()
def spectra(
    model: ModelLike,
    *,
    basis: Basis = "token",
    centred: bool = True,
    tokens: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> xr.Dataset:
    """Singular values and eigenvalues of the OV and QK circuits.

    For `basis='token'` input and output vocabulary are the same, and `tokens` may restrict it. `centred` takes the mean
    of each row from token circuits. Raises InputError where the model is not supported, or has no such token or layer.

    Returns:
        Over (circuit, layer, head, index): `singular_value`, descending, and `eigenvalue` (complex), by descending
        modulus; the circuits have rank at most d_head. Over (circuit, layer, head): `sign_score`, NaN for a circuit
        that is zero.

    >>> ms.analyses.spectra(model).singular_value.dims
    ('circuit', 'layer', 'head', 'index')
    """
    model = resolve_model(model)
    one_of("basis", basis, BASES)
    weights = effective_weights(model, layers)
    chosen = _tokens(weights, tokens) if basis == "token" else None
    read = {"singular_value": factored_singular_values, "eigenvalue": factored_eigenvalues}
    cells: dict[str, list[Tensor]] = {name: [] for name in read}
    for circuit, index in product(CIRCUIT_KINDS, range(len(weights.layers))):
        left, right = circuit_factors(weights, circuit, index, chosen, centred)
        for name, values in read.items():
            cells[name].append(values(left, right).cpu())
    stacked = {name: torch.stack(both).unflatten(0, (len(CIRCUIT_KINDS), -1)) for name, both in cells.items()}
    dims = ("circuit", "layer", "head")
    return xr.Dataset(
        {
            **{name: ((*dims, "index"), to_numpy(array)) for name, array in stacked.items()},
            "sign_score": (dims, to_numpy(sign_score(stacked["eigenvalue"]))),
        },
        coords={"circuit": list(CIRCUIT_KINDS), **weights.coords},
        attrs=_attrs(weights, chosen, centred),
    )


@check_arguments
@torch.no_grad()
def singular_tokens(
    model: ModelLike,
    *,
    circuit: CircuitKind,
    layer: int,
    head: int,
    n_vectors: int = 3,
    n_tokens: int = 10,
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """The leading singular vectors of a token circuit, read in tokens on both sides.

    Input and output vocabulary of the model are the same; `tokens` restricts both. `OV` goes from source tokens (left)
    to logits (right), `QK` from query tokens to key tokens. Vectors are ordered by singular value, their tokens by
    absolute weight. Raises InputError where there is no such circuit, layer, head, token or that many vectors.

    Returns:
        `singular_value` (vector); `token` and `weight` (vector, side, rank), side `left` or `right`: a source with
        left weight a raises a logit with right weight b by a * b * singular value. The sign that both sides share is
        such that the largest left weight is positive. Rows are centred, as in `spectra`.

    >>> ms.analyses.singular_tokens(model, circuit="OV", layer=0, head=1, n_tokens=3).token.dims
    ('vector', 'side', 'rank')
    """
    model = resolve_model(model)
    one_of("circuit", circuit, CIRCUIT_KINDS)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    in_range("head", head, 0, model.cfg.n_heads - 1)
    weights = effective_weights(model, [layer])
    chosen = _tokens(weights, tokens)
    left, s, right = (side[head] for side in factored_svd(*circuit_factors(weights, circuit, 0, chosen, centred=True)))
    in_range("n_vectors", n_vectors, 1, len(s))
    in_range("n_tokens", n_tokens, 1, len(chosen))
    vectors = torch.stack([left, right]).mT[:, :n_vectors]
    order = vectors.abs().argsort(-1, descending=True)[..., :n_tokens]
    weight = vectors.gather(-1, order)
    weight = (weight * weight[:1, :, :1].sign()).transpose(0, 1).cpu()
    token = torch.tensor(chosen)[order.transpose(0, 1).cpu()]
    dims = ("vector", "side", "rank")
    values = to_numpy(s[:n_vectors])
    return xr.Dataset(
        {"singular_value": ("vector", values), "token": (dims, to_numpy(token)), "weight": (dims, to_numpy(weight))},
        coords={"side": ["left", "right"]},
        attrs={"circuit": circuit, "component": f"L{layer}H{head}", **_attrs(weights, chosen, True)},
    )


def circuit_factors(
    weights: EffectiveWeights, circuit: CircuitKind, index: int, tokens: Sequence[int] | None, centred: bool
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
        given = f"it has {d_in} and {d_out} tokens; use spectra(basis='residual') or ov_circuits"
        raise InputError(f"the model must have one vocabulary for input and output; {given}")
    return check_indices("tokens", tokens, d_in)


def _attrs(weights: EffectiveWeights, tokens: Sequence[int] | None, centred: bool) -> dict[str, str | int]:
    result: dict[str, str | int] = {"weights": weights.description, "normalisation": "sigma left out"}
    if tokens is not None:
        result |= {"n_tokens": len(tokens), "rows": "centred" if centred else "as they are"}
    return result


CHUNK = 1024
"""Source tokens whose logits are held at a time."""
EXTREMES = ("largest", "smallest")
ALONG = ("logit", "source_token")


@check_arguments
@torch.no_grad()
def copying(
    model: ModelLike, *, tokens: Sequence[int] | None = None, layers: Sequence[int] | None = None
) -> xr.Dataset:
    """The degree to which a head raises (or lowers) the logit of the token that it attends to.

    Input and output vocabulary of the model are the same. Time grows with the square of the number of tokens, memory
    does not. Errors are those of `spectra`.

    Returns:
        Over (layer, head): `copying_score`, the sign score of the OV token circuit.
        Over (layer, head, along, extreme): `own`, the share of tokens whose own entry in the circuit is strictly the
        largest, or the smallest: among all logits of that source token (`logit`: what attending to it does), or among
        all source tokens for that logit (`source_token`: what raises it). By chance 1 / n_tokens. Rows are centred.

    >>> ms.analyses.copying(model).copying_score.dims
    ('layer', 'head')
    """
    model = resolve_model(model)
    scores = spectra(model, tokens=tokens, layers=layers)
    weights = effective_weights(model, layers)
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    factored = (circuit_factors(weights, "OV", index, chosen, centred=True) for index in range(len(weights.layers)))
    own = torch.stack([_own_extremes(left, right) for left, right in factored])
    return xr.Dataset(
        {
            "copying_score": scores.sign_score.sel(circuit="OV", drop=True),
            "own": (("layer", "head", "along", "extreme"), to_numpy(own)),
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


@check_arguments
@torch.no_grad()
def same_token_affinity(
    model: ModelLike, *, tokens: Sequence[int] | None = None, layers: Sequence[int] | None = None
) -> xr.DataArray:
    """Mean score that a query token gives to itself as a key, minus the mean over the other tokens.

    Over (layer, head), in attention scores. Raises InputError where the model is not supported, or fewer than two
    tokens are chosen.

    >>> ms.analyses.same_token_affinity(model).dims
    ('layer', 'head')
    """
    model = resolve_model(model)
    weights = effective_weights(model, layers)
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    n = len(chosen)
    if n < 2:
        raise InputError(f"tokens must name at least two, to be compared; got {chosen}")
    token = weights.W_E[chosen]
    own = (weights.W_Q * (token.T @ token @ weights.W_K)).sum((-2, -1))
    rest = ((token.sum(0) @ weights.W_Q) * (token.sum(0) @ weights.W_K)).sum(-1) - own
    return xr.DataArray(
        to_numpy((own / n - rest / (n * (n - 1))) / weights.attn_scale[:, None]),
        dims=("layer", "head"),
        coords=weights.coords,
        attrs={"unit": "attention score", "weights": weights.description, "n_tokens": n},
    )


@check_arguments
@torch.no_grad()
def offset_affinity(model: ModelLike, *, n_pos: int | None = None, layers: Sequence[int] | None = None) -> xr.DataArray:
    """Mean score that a position gives to the one `offset` places back, minus the mean over its other keys.

    The model adds positions to its residual stream. The first `n_pos` of them count (none: the whole context). Keys are
    those that a query may attend to. Raises InputError where the model is not supported, or `n_pos` is out of range.
    Returns attention scores over (layer, head, offset), offsets from 0 to `n_pos` - 1. Means are over the queries that
    have such a key and another one: high offsets rest on few, n_pos - offset.

    >>> ms.analyses.offset_affinity(model).dims
    ('layer', 'head', 'offset')
    """
    model = resolve_model(model)
    weights = effective_weights(model, layers)
    if weights.W_pos is None:
        raise InputError("the model must have positions that are added to the residual stream")
    n_ctx = len(weights.W_pos)
    n_pos = n_ctx if n_pos is None else n_pos
    if not 2 <= n_pos <= n_ctx:
        raise InputError(f"n_pos must be from 2 to the model's context of {n_ctx}; got {n_pos}")
    position = weights.W_pos[:n_pos]
    scores = (position @ weights.W_Q) @ (position @ weights.W_K).mT / weights.attn_scale[:, None, None, None]
    places, causal = torch.arange(n_pos, device=scores.device), model.cfg.attention_dir == "causal"
    seen = visible_keys(places, n_pos, causal=causal)
    total = (scores * seen).sum(-1, keepdim=True)
    n_others = seen.sum(-1, keepdim=True) - 1
    against_others = (scores - (total - scores) / n_others)[..., 1:, :]  # the first may have one key only
    means = [against_others.diagonal(1 - offset, -2, -1).mean(-1) for offset in range(n_pos)]
    return xr.DataArray(
        to_numpy(torch.stack(means, -1)),
        dims=("layer", "head", "offset"),
        coords={**weights.coords, "offset": list(range(n_pos))},
        attrs={"unit": "attention score", "weights": weights.description, "n_pos": n_pos},
    )
