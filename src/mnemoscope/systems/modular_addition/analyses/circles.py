"""Fourier modes of embeddings and logits, and the loss with some of these modes alone or without them.

The embedding of the numbers 0 to p - 1 is a sum of modes of frequency k = 1 … (p - 1) / 2,

    E_n = mean + Σ_k  u_k cos(2π k n / p) + v_k sin(2π k n / p).

A mode is a circle where u_k and v_k are of equal length and at right angles. `share` is the share of the variance over
numbers that a mode holds, `roundness` the smaller over the larger singular value of (u_k, v_k): 1 is a circle, 0 a
line. `few` is the sum of the largest shares.

Logits are a function of a, b and the answer c. The *sum modes* of frequency k are their components along
cos(2π k (a + b) / p) and sin(2π k (a + b) / p), for every c (Nanda et al. 2023). Key frequencies are the largest ones
that together hold `HELD` of the variance in sum modes. The *restricted* loss is that of the mean and the sum modes of
the key frequencies alone; the *excluded* loss that of the logits without these modes.

*Shows* which functions of the numbers are there. *Does not show* how they are computed: a table of answers has all
frequencies alike, and a clock and a pizza share their circles.
"""

import math

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import HookedModel
from mnemoscope.systems.modular_addition.tasks import ModularAddition

HELD = 0.95
NOTHING = 1e-12
"""Share of an embedding's squares below which its modes are rounding errors."""
FEW = 5
"""Modes that count as few."""


@torch.no_grad()
def answer_logits(model: HookedModel, task: ModularAddition) -> Float[Tensor, "a b c"]:
    """The logits of all answers to all sequences, float64, without their mean over answers."""
    p = task.modulus
    logits = model(task.table().inputs)[:, -1, :p].double().view(p, p, p)
    return logits - logits.mean(-1, keepdim=True)


def waves(p: int) -> Float[Tensor, "frequency part number"]:
    """Cosine and sine of every frequency at every number, each of unit length."""
    angles = 2 * math.pi * torch.outer(torch.arange(1, p // 2 + 1), torch.arange(p)).double() / p
    return torch.stack((angles.cos(), angles.sin()), 1) * math.sqrt(2 / p)


@torch.no_grad()
def embedding_modes(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """Over `frequency` the `share` and `roundness` of the modes of the embedding, and `few`, the largest shares."""
    weights = dict(model.named_parameters())["embed.W_E"][: task.modulus].double()
    return modes_of(weights)


def modes_of(table: Float[Tensor, "number width"]) -> xr.Dataset:
    """The modes of any vectors of the numbers 0 to p - 1, p odd, as `embedding_modes`."""
    parts = torch.einsum("fpn,nw->fpw", waves(len(table)), table.double())
    sizes = torch.linalg.svdvals(parts)
    power = parts.square().sum((1, 2))
    share = power / torch.maximum(power.sum(), NOTHING * table.double().square().sum() + 1e-300)
    largest = share.topk(min(FEW, len(share)))
    weight = largest.values / largest.values.sum().clamp(min=1e-300)
    roundness = sizes[:, 1] / sizes[:, 0].clamp(min=1e-300)
    return xr.Dataset(
        {
            "share": ("frequency", share.numpy()),
            "roundness": ("frequency", roundness.numpy()),
            "few": float(largest.values.sum()),
            "round": float((weight * roundness[largest.indices]).sum()),
        },
        coords={"frequency": range(1, len(share) + 1)},
        attrs={"unit": "share of the variance over numbers", "few": FEW},
    )


def sum_modes(logits: Float[Tensor, "a b c"]) -> Float[Tensor, "frequency part c"]:
    """The components of the logits along cosine and sine of a + b, as functions of unit length over all sequences."""
    p = len(logits)
    number = torch.arange(p)
    by_sum = torch.zeros(p, p, dtype=torch.double)
    by_sum.index_add_(0, ((number[:, None] + number) % p).flatten(), logits.flatten(0, 1))
    return torch.einsum("fps,sc->fpc", waves(p), by_sum) / math.sqrt(p)


def key_frequencies(logits: Float[Tensor, "a b c"], *, held: float = HELD) -> Int[Tensor, " key"]:
    """The fewest frequencies whose sum modes hold so much of the variance in sum modes, largest first, from 1."""
    power = sum_modes(logits).square().sum((1, 2)).sort(descending=True)
    cumulated = power.values.cumsum(0) / power.values.sum().clamp(min=1e-300)
    return power.indices[: int((cumulated < held).sum()) + 1] + 1


def key_frequency_losses(model: HookedModel, task: ModularAddition, *, held: float = HELD) -> xr.Dataset:
    """Loss (nats) and accuracy over all sequences of the logits as they are, restricted and excluded.

    Over `logits` (all, restricted, excluded): `loss` and `accuracy`. `n_key` frequencies are kept or taken away.
    """
    logits = answer_logits(model, task)
    p, number = task.modulus, torch.arange(task.modulus)
    sums = (number[:, None] + number) % p
    key = key_frequencies(logits, held=held)
    parts, functions = sum_modes(logits)[key - 1], waves(p)[key - 1] / math.sqrt(p)
    kept = torch.einsum("fps,fpc->sc", functions, parts)[sums]
    versions = {"all": logits, "restricted": logits.mean((0, 1)) + kept, "excluded": logits - kept}
    scores = {
        name: (_loss(each, sums), float((each.argmax(-1) == sums).double().mean())) for name, each in versions.items()
    }
    return xr.Dataset(
        {
            "loss": ("logits", [loss for loss, _ in scores.values()]),
            "accuracy": ("logits", [accuracy for _, accuracy in scores.values()]),
            "n_key": len(key),
        },
        coords={"logits": list(scores)},
        attrs={"unit": "loss: nats; accuracy: share", "key": key.tolist()},
    )


def _loss(logits: Float[Tensor, "a b c"], sums: Int[Tensor, "a b"]) -> float:
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), sums.flatten()))


def forms(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """Over `form` the `share` of the logits' variance that a clock's form and a pizza's explain, least squares.

    Clock: Σ_k α_k cos(2π k (a + b - c) / p). Pizza: the same with |cos(π k (a - b) / p)| before every term. Both have
    a coefficient for every frequency. A table of answers has the clock's form with all coefficients alike.
    """
    logits, p = answer_logits(model, task), task.modulus
    logits = logits - logits.mean((0, 1))
    number, frequency = torch.arange(p), torch.arange(1, p // 2 + 1).double()[:, None, None, None]
    a, b, c = number[:, None, None], number[:, None], number
    clock = (2 * math.pi * frequency * ((a + b - c) % p) / p).cos()
    pizza = clock * (math.pi * frequency * (a - b) / p).cos().abs()
    shares = {"clock": _explained(logits, clock), "pizza": _explained(logits, pizza)}
    return xr.Dataset({"share": ("form", list(shares.values()))}, coords={"form": list(shares)})


def _explained(values: Float[Tensor, "a b c"], terms: Float[Tensor, "frequency a b c"]) -> float:
    """R² of a sum of terms."""
    columns, y = terms.flatten(1), values.flatten()
    coefficients = torch.linalg.lstsq(columns @ columns.T, columns @ y).solution
    return float(1 - (y - coefficients @ columns).square().sum() / y.square().sum().clamp(min=1e-300))
