"""Likeness of trained runs: their distance, whatever order and signs the weights are written in.

A copy of a run is one run, also with noise, its neurons, heads or residual dimensions permuted, signs flipped, scales
moved between weights, or trained on for a few steps. Two measures notice it:

*Weights*: 1 - the mean cosine of embeddings, heads and neurons, each with its best partner in the other run. The
dimensions of the residual stream are matched first, one to one and up to sign, by what embeddings and unembedding have
there. A head goes by its OV and QK products, a neuron by the direction that it reads times the one that it writes.
*Function*: 1 - the correlation of the logits on random inputs, which no way of writing the weights changes.

Independent seeds are far apart by weights, since each starts from its own (`DISTANT`), and mostly by function. *Does
not show* that two runs are independent where they share their initial weights: such runs are near each other anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mnemoscope.core.protocols import VectorTask
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.engine.architecture import transformer_from_spec
from mnemoscope.engine.block import OutputPlaces

DISTANT = 0.25
"""Distance of weights below which two runs are one. The nearest pair of shipped seeds is .30 apart; 30 more steps of
training move a run by .08 at most."""
DIFFERENT = 1e-3
"""Distance of functions below which two runs are one, unless each descends from its own seed: shipped seeds of a task
that has one exact answer come as near as 7e-4."""
N_TOKENS = 2048
"""Random tokens on which functions are compared."""


class Distance(NamedTuple):
    """The distance of two runs: 0 for the same model, about 1 for unrelated ones."""

    weights: float
    function: float

    @property
    def near(self) -> bool:
        """True if the two are one run."""
        return self.weights < DISTANT or self.function < DIFFERENT


@dataclass(frozen=True, eq=False)
class Portrait:
    """The parts of a model that are compared, in float32 and of unit length."""

    embeddings: Float[Tensor, "feature d_model"]
    heads: Float[Tensor, "layer head kind d_model d_model2"]
    neurons: Float[Tensor, "layer neuron kind d_model"]
    logits: Float[Tensor, " output"]


@torch.no_grad()
def portrait(params: Mapping[str, Tensor], spec: RunSpec) -> Portrait:
    """The portrait of a model with these parameters."""
    model, params = spec.model, {name: value.detach().float().nan_to_num() for name, value in params.items()}

    def layers(name: str, chosen: Sequence[int]) -> Tensor:
        return torch.stack([params[f"blocks.{layer}.{name}"] for layer in chosen])

    reads = torch.cat([params[name] for name in ("embed.W_E", "pos_embed.W_pos") if name in params])
    embeddings = _unit(torch.cat([_unit(reads, 0), _unit(params["unembed.W_U"].T, 0)]), 0)
    heads = torch.zeros(0, 1, 2, model.d_model, model.d_model)
    if model.attention:
        q, k, v, o = (layers(f"attn.W_{kind}", range(model.n_layers)) for kind in "QKVO")
        qk = einsum(q, k, "layer head d_model width, layer head other width -> layer head d_model other")
        ov = einsum(v, o, "layer head d_model width, layer head width other -> layer head d_model other")
        heads = _unit(torch.stack([qk, ov], 2), (-2, -1))
    neurons = torch.zeros(0, 1, 2, model.d_model)
    if with_mlp := range(model.first_mlp, model.n_layers) if model.mlp else ():
        reading = rearrange(layers("mlp.W_in", with_mlp), "layer d_model neuron -> layer neuron d_model")
        neurons = _unit(torch.stack([reading, layers("mlp.W_out", with_mlp)], 2), -1)
    logits = transformer_from_spec(params, model)(
        random_inputs(spec), OutputPlaces(columns=torch.arange(spec.task.n_ctx))
    )
    if not isinstance(spec.task, VectorTask):
        logits = logits - logits.mean(-1, keepdim=True)
    return Portrait(embeddings, heads, neurons, _unit(logits.flatten(), 0))


def random_inputs(spec: RunSpec) -> Tensor:
    """Inputs of full length from no distribution that a model was trained on: uniform tokens, or normal vectors."""
    task, draws = spec.task, generator(0, "likeness")
    size = (max(1, N_TOKENS // task.n_ctx), task.n_ctx)
    if isinstance(task, VectorTask):
        return torch.randn(*size, task.d_vocab, generator=draws, dtype=torch.float32)
    return torch.randint(task.d_vocab, size, generator=draws)


def distance(one: Portrait, other: Portrait) -> Distance:
    """The distance of two models of one specification."""
    cosines = one.embeddings.T @ other.embeddings
    order = torch.from_numpy(linear_sum_assignment(cosines.abs().numpy(), maximize=True)[1])
    matched = cosines.gather(1, order[:, None])[:, 0]
    signs = torch.where(matched < 0, -1.0, 1.0)
    likeness = [_mean(matched.abs(), one.embeddings.any(0))]
    if (there := one.heads.flatten(3).any(-1)).any():
        aligned = other.heads[..., order, :][..., order] * signs[:, None] * signs
        cosine = einsum(one.heads, aligned, "layer h kind d e, layer h2 kind d e -> layer h h2 kind")
        best = (cosine.sum(-1) / there.sum(-1).clamp(min=1)[..., None]).amax(-1)
        likeness.append(_mean(best, there.any(-1)))
    if (there := one.neurons.any(-1).all(-1)).any():
        aligned = other.neurons[..., order] * signs
        cosine = einsum(one.neurons, aligned, "layer n kind d, layer n2 kind d -> layer n n2 kind")
        likeness.append(_mean(cosine.prod(-1).amax(-1), there))
    return Distance(1 - sum(likeness) / len(likeness), 1 - float(one.logits.double() @ other.logits.double()))


def distances(portraits: Sequence[Portrait]) -> dict[tuple[int, int], Distance]:
    """The distances of all pairs, by their places."""
    return {(i, j): distance(portraits[i], portraits[j]) for i, j in combinations(range(len(portraits)), 2)}


def _mean(values: Tensor, counted: Tensor) -> float:
    """The mean over what counts: parts of a model that are not zero."""
    return float(values[counted].mean()) if counted.any() else 1.0


def _unit(value: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """The tensor over its length along some dimensions; zero where that is zero."""
    length = torch.linalg.vector_norm(value, dim=dim, keepdim=True)
    return value / length.clamp(min=torch.finfo(value.dtype).tiny)
