"""The strength with which heads read, through Q, K or V, what heads of earlier layers write.

The score of a writer with W_OV = W_V W_O and a reader is |W_OV B| / (|W_OV| |B|) in Frobenius norms, with
B = W_Q W_K^T for Q-composition, W_K W_Q^T for K-composition and the reader's own W_V W_O for V-composition, all with
LayerNorm folded in. Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

Any two matrices overlap a little. The baseline keeps the singular values of both and turns one of them by a random
rotation of the residual stream (of its centred part where the model has LayerNorm): the mean square of the score is
then 1 / d_model (1 / (d_model - 1)) whatever the singular values, and its spread depends on them. If almost all random
scores are smaller, the overlap is no accident.

*Shows* that what one head writes and what another reads lie in the same directions.

*Does not show* that the path is used: that takes attention at the right places, and an intervention. A large score of
matrices that both favour a direction that everything shares (a common bias, say) is no circuit. A score inside the
baseline does not exclude composition through a few directions.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.weights import EffectiveWeights, chosen_indices, effective_weights
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import factored_singular_values
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator

Through = Literal["Q", "K", "V"]
THROUGH: tuple[Through, ...] = ("Q", "K", "V")


@torch.no_grad()
def composition(
    model: HookedModel, *, through: Sequence[Through] = THROUGH, n_random: int = 500, seed: int = 0
) -> xr.Dataset:
    """Composition scores of all pairs of heads in different layers, beside those of randomly turned matrices.

    Random rotations, the same for all pairs, come from the seed's stream `rotations`. Raises InputError where the model
    has one layer, or is not supported.

    Returns:
        Over (through, writer, reader), labels `L0H1`: `score`; `baseline_mean` and `baseline_sd` of the random
        scores; `z`, the distance from their mean in standard deviations; `share_below`, the share of the random scores
        that are smaller, as (k + 1/2) / (n_random + 1). NaN where the reader is not in a later layer and where one
        of the matrices is zero.
    """
    in_range("n_random", n_random, 2, float("inf"))
    for letter in through:
        one_of("an entry of through", letter, THROUGH)
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
    attrs = {
        "unit": "share of the product of the Frobenius norms",
        "weights": weights.description,
        "baseline": "same singular values, one matrix turned by a random rotation",
        "baseline_rms": _d_seen(weights) ** -0.5,
        "n_random": n_random,
    }
    return xr.Dataset(
        {
            name: (dims, torch.stack([result[name].cpu().where(apart, torch.nan) for result in results]).numpy())
            for name in results[0]
        },
        coords={"through": list(through), "writer": labels, "reader": labels},
        attrs=attrs,
    )


@torch.no_grad()
def composed_circuit(
    model: HookedModel,
    *,
    writer: tuple[int, int],
    reader: tuple[int, int],
    through: Through,
    tokens: Sequence[int] | None = None,
) -> xr.DataArray:
    """The token circuit of a path through two heads: the reader's, where one side has gone through the writer.

    W_E W_OV B^T W_E^T for K-composition, and so on: the score that a query token gives to a key at whose place the
    writer put, with attention one, what it makes of a token (K; Q likewise with the query's place), or the logits of
    the virtual head (V). In an induction head it says whether a token attends to places that follow that token.

    `writer` and `reader` are (layer, head), the reader in a later layer; there may be up to 4096 tokens. Raises
    InputError where a head does not exist or not in a later layer, or there are too many tokens.

    Returns the circuit over (query_token, key_token) in attention scores, or (source_token, logit) in logits; sigmas
    are left out.
    """
    one_of("through", through, THROUGH)
    for name, (layer, head) in (("writer", writer), ("reader", reader)):
        in_range(f"the layer of {name}", layer, 0, model.cfg.n_layers - 1)
        in_range(f"the head of {name}", head, 0, model.cfg.n_heads - 1)
    if reader[0] <= writer[0]:
        raise InputError(f"reader must be in a later layer than the writer's, {writer[0]}; got {reader[0]}")
    weights = effective_weights(model, [writer[0], reader[0]])
    chosen = chosen_indices("tokens", tokens, len(weights.W_E))
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
    return xr.DataArray(circuit.cpu().numpy(), dims=dims, coords=coords, attrs=attrs)


def _d_seen(weights: EffectiveWeights) -> int:
    """Dimensions of the residual stream in which heads write and read."""
    return weights.W_E.shape[1] - (1 if weights.centred else 0)


def _random_corners(weights: EffectiveWeights, n: int, seed: int) -> Float[Tensor, "random rank rank"]:
    """Squares of the first entries of random orthogonal matrices, that is, of the overlap of two random frames."""
    width = _d_seen(weights)
    rank = min(width, weights.W_Q.shape[-1])
    draws = torch.randn(n, width, rank, generator=generator(seed, "rotations"), dtype=torch.double)
    return torch.linalg.qr(draws).Q[:, :rank].square().to(weights.W_E.device)


def _all_pairs(
    weights: EffectiveWeights, through: Through, corners: Float[Tensor, "random rank rank"]
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
    return {
        "score": score,
        "baseline_mean": mean,
        "baseline_sd": sd,
        "z": (score - mean) / sd,
        "share_below": ((smaller + 0.5) / (len(random) + 1)).where(~score.isnan(), torch.nan),
    }
