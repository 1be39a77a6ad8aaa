"""C3 and C6: models of one layer that add modulo 31, with softmax attention (c1) or every attention weight at 1 (c0).

Plain algebra on the weights: there are no biases but those of the MLP, no normalisation, and two positions. The answer
stands at the second number, so that with E_a and E_b for the numbers, position included, it follows from
E_b + Σ over heads of (weight of a · E_a + weight of b · E_b) W_V W_O.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from archives import Run
from judging import Criterion, Replication

P = 31
N_LARGEST = 5
SUM = (torch.arange(P)[:, None] + torch.arange(P)) % P


@dataclass(frozen=True, kw_only=True, eq=False)
class Adder:
    """The weights of a model, in float64, and its activations on all sums, of shapes (a, b, …)."""

    weights: Mapping[str, Tensor]
    pattern: Tensor
    """Attention at b, of shape (a, b, head, key)."""

    def before_relu(self, pattern: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream before the MLP and the neurons before their ReLU, for a pattern."""
        w = self.weights
        x = w["embed.W_E"] + w["pos_embed.W_pos"][:, None]  # position, number, d_model
        written = torch.einsum("knd,hde,hef->khnf", x, w["blocks.0.attn.W_V"], w["blocks.0.attn.W_O"])
        middle = (
            x[1]
            + torch.einsum("abh,haf->abf", pattern[..., 0], written[0])
            + torch.einsum("abh,hbf->abf", pattern[..., 1], written[1])
        )
        return middle, middle @ w["blocks.0.mlp.W_in"] + w["blocks.0.mlp.b_in"]

    def accuracy(self) -> float:
        """The share of all sums that are right."""
        w = self.weights
        middle, before = self.before_relu(self.pattern)
        after = middle + before.relu() @ w["blocks.0.mlp.W_out"] + w["blocks.0.mlp.b_out"]
        return float(((after @ w["unembed.W_U"]).argmax(-1) == SUM).double().mean())


def adder(run: Run) -> Adder:
    """A run as an `Adder`."""
    w = {name: value.double() for name, value in run.weights.items()}
    x = w["embed.W_E"] + w["pos_embed.W_pos"][:, None]
    query = torch.einsum("nd,hde->hne", x[1], w["blocks.0.attn.W_Q"])
    keys = torch.einsum("knd,hde->khne", x, w["blocks.0.attn.W_K"])
    to_a = torch.einsum("hbe,hae->abh", query, keys[0])
    to_b = torch.einsum("hbe,hbe->bh", query, keys[1]).expand_as(to_a)
    pattern = (torch.stack((to_a, to_b), -1) / math.sqrt(query.shape[-1])).softmax(-1)
    if run.model.get("attention_mix", 1.0) == 0:
        pattern = torch.ones_like(pattern)
    return Adder(weights=w, pattern=pattern)


def waves() -> Tensor:
    """Cosine and sine of every frequency from 1 to 15 over the numbers, of unit norm: (frequency, 2, number)."""
    angle = 2 * math.pi * torch.arange(1, P // 2 + 1).double()[:, None] * torch.arange(P) / P
    return torch.stack((angle.cos(), angle.sin()), 1) * math.sqrt(2 / P)


def circles(runs: Mapping[str, Run]) -> dict[str, float]:
    """C3: the share of the embedding's variance in its five largest modes, and how round these are."""
    effects = {"gate": min(adder(run).accuracy() for run in runs.values())}
    for name, run in runs.items():
        modes = waves() @ run.weights["embed.W_E"].double()  # frequency, 2, d_model
        size = modes.square().sum((1, 2))
        largest = size.topk(N_LARGEST)[1]
        singular = torch.linalg.svdvals(modes[largest])
        effects[f"{name}_few"] = float(size[largest].sum() / size.sum())
        effects[f"{name}_round"] = float((singular[:, 1] / singular[:, 0] * size[largest]).sum() / size[largest].sum())
    return effects


def one_map(runs: Mapping[str, Run]) -> dict[str, float]:
    """C6: the accuracy of the map, the agreement of its phases, and symmetricity with even attention."""
    effects = {"gate": min(adder(run).accuracy() for run in runs.values())}
    for name, run in runs.items():
        effects[f"{name}_map"], effects[f"{name}_phases"] = fitted_map(adder(run))
    return {**effects, "c1_evened": evened_symmetricity(adder(runs["c1"]))}


def fitted_map(model: Adder) -> tuple[float, float]:
    """The accuracy of the map and the mean cosine of written with read phases, weighted by C min(A, B).

    Every neuron is fitted before its ReLU by its mean and one frequency, that of the largest variance: a cosine of a
    and one of b. What it writes is fitted by a cosine of the same frequency.
    """
    wave, w = waves(), model.weights
    before = model.before_relu(model.pattern)[1]
    of_a, of_b = (torch.einsum("fwx,xn->nfw", wave, before.mean(1 - axis)) for axis in (0, 1))
    best = (of_a.square() + of_b.square()).sum(-1).argmax(-1)
    neuron = torch.arange(len(best))
    read_a, read_b = of_a[neuron, best], of_b[neuron, best]  # neuron, 2
    written = torch.einsum("fwx,nx->nfw", wave, w["blocks.0.mlp.W_out"] @ w["unembed.W_U"])[neuron, best]
    phase = torch.atan2(read_a[:, 1], read_a[:, 0]) + torch.atan2(read_b[:, 1], read_b[:, 0])
    size = written.norm(dim=1)
    agreement = (torch.atan2(written[:, 1], written[:, 0]) - phase).cos()
    weight = size * torch.minimum(read_a.norm(dim=1), read_b.norm(dim=1))
    fit = (
        before.mean((0, 1))
        + torch.einsum("nw,nwa->an", read_a, wave[best])[:, None]
        + torch.einsum("nw,nwb->bn", read_b, wave[best])
    )
    at_sum = size[:, None] * torch.einsum("nw,nwc->nc", torch.stack((phase.cos(), phase.sin()), 1), wave[best])
    right = (fit.relu() @ at_sum).argmax(-1) == SUM
    return float(right.double().mean()), float((weight * agreement).sum() / weight.sum())


def evened_symmetricity(model: Adder) -> float:
    """The mean cosine of the gradients of a logit by both embeddings, where every head halves its attention.

    Attention is fixed, so that a reaches the stream before the MLP through Σ over heads of W_V W_O ÷ 2, and b besides
    through the identity.
    """
    w = model.weights
    through = torch.einsum("hde,hef->df", w["blocks.0.attn.W_V"], w["blocks.0.attn.W_O"]) / 2
    before = model.before_relu(torch.full_like(model.pattern, 0.5))[1]
    raises = w["blocks.0.mlp.W_out"] @ w["unembed.W_U"]
    total = torch.zeros((), dtype=torch.double)
    for active in (before > 0).double():  # of one a: b, neuron
        gradient = torch.einsum("dn,bn,nc->bcd", w["blocks.0.mlp.W_in"], active, raises) + w["unembed.W_U"].T
        by_a = gradient @ through.T
        total += torch.cosine_similarity(by_a, by_a + gradient, dim=-1).mean()
    return float(total / P)


_UNITS = {"c1": "addition-c1-quick", "c0": "addition-c0-quick"}
REPLICATIONS = (
    Replication(
        claim="C3",
        system="modular_addition",
        units=_UNITS,
        criteria=(
            *(Criterion(effect=name, direction="above", margin=0.75) for name in ("c1_few", "c0_few")),
            *(Criterion(effect=name, direction="above", margin=0.5) for name in ("c1_round", "c0_round")),
        ),
        replicate=circles,
        at_least=0.99,
        first_seed=32,
    ),
    Replication(
        claim="C6",
        system="modular_addition",
        units=_UNITS,
        criteria=(
            *(Criterion(effect=name, direction="above", margin=0.5) for name in ("c1_map", "c0_map")),
            *(Criterion(effect=name, direction="above", margin=0.9) for name in ("c1_phases", "c0_phases")),
            Criterion(effect="c1_evened", direction="above", margin=0.72),
        ),
        replicate=one_map,
        at_least=0.99,
        first_seed=32,
    ),
)
