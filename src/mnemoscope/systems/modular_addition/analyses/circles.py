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
from collections.abc import Sequence
from functools import partial
from typing import Any

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
def answer_logits(
    model: HookedModel, task: ModularAddition, *, hooks: Sequence[tuple[str, Any]] = ()
) -> Float[Tensor, "a b c"]:
    """The logits of all answers to all sequences, float64, without their mean over answers."""
    p, inputs = task.modulus, task.table().inputs
    given = model.run_with_hooks(inputs, fwd_hooks=list(hooks)) if hooks else model(inputs)
    logits = given[:, -1, :p].double().view(p, p, p)
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


@torch.no_grad()
def forms(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """Over `form` the `share` of the logits' variance that a clock's and a pizza's form explain, one circle at a time.

    The embedding is cut down to its mean and one of its largest modes, of frequency k, and the logits that are left are
    fitted by one term: cos(2π k (a + b - c) / p) for a clock, the same times |cos(π k (a - b) / p)| for a pizza. Shares
    are means over modes, weighted by their variance. Circles together hide the form: a pizza's fill each other's gaps.
    """
    p, number = task.modulus, torch.arange(task.modulus)
    a, b, c = number[:, None, None], number[:, None], number
    embedding = dict(model.named_parameters())["embed.W_E"][:p].double()
    modes = modes_of(embedding)
    largest = torch.from_numpy(modes.share.values).topk(min(FEW, p // 2))
    shares = torch.zeros(2, dtype=torch.double)
    for weight, k in zip(largest.values, largest.indices + 1, strict=True):
        wave = waves(p)[k - 1]
        table = embedding.mean(0) + wave.T @ (wave @ embedding)
        logits = answer_logits(model, task, hooks=[("hook_embed", partial(_look_up, table=table, task=task))])
        logits = logits - logits.mean((0, 1))
        clock = (2 * math.pi * k * ((a + b - c) % p) / p).cos()
        pizza = clock * (math.pi * k * (a - b) / p).cos().abs()
        shares += weight * torch.stack([_explained(logits, term - term.mean((0, 1))) for term in (clock, pizza)])
    shares = shares / largest.values.sum().clamp(min=1e-300)
    return xr.Dataset({"share": ("form", shares.numpy())}, coords={"form": ["clock", "pizza"]})


def _look_up(embedded: Tensor, hook: Any, *, table: Float[Tensor, "number d_model"], task: ModularAddition) -> Tensor:
    """The embeddings of all sequences by another table; an equals sign keeps its own."""
    numbers = table[task.table().inputs[:, :2]].to(embedded.dtype)
    return torch.cat((numbers, embedded[:, 2:]), 1)


def _explained(values: Float[Tensor, "a b c"], term: Float[Tensor, "a b c"]) -> Float[Tensor, ""]:
    """R² of one term; 0 where there is nothing to explain."""
    return (values * term).sum().square() / (values.square().sum() * term.square().sum()).clamp(min=1e-300)
