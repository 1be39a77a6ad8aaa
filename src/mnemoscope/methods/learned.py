"""Methods that learn: masks of edges (uniform gradient sampling), and the constants that replace parts best.

Both are of Li & Janson 2024 ("Optimal ablation for interpretability"), written anew from their formulas. The loss L is
the divergence of the circuit's predictions from the model's, KL in nats at scored positions, relative to that of the
empty circuit.

*UGS*: every edge is in the circuit with probability θ. In each pass and prompt its share a of clean signal is uniform
in [0, 1] with probability w = θ(1 - θ), else 1 or 0, so that its mean is θ. The gradient of L + `PENALTY` · Σ θ in the
logit of θ is w times that in θ, and so the mean of dL/da over passes with a uniform share counts. The score is θ.

*Optimal ablation*: a constant for every writer, the same at all positions, that makes L least when all edges from the
writer carry it. The score of an edge is L when it alone carries its writer's constant. A part that holds one value
whatever the prompt costs nothing, where zero ablation calls it needed. Learning stops after a number of steps, whether
the least L was found or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.analyses.discovery.setting import Setting, label_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site, reading_depth
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.circuit_runs import mixed_logits
from mnemoscope.interventions.edge_states import record_writers
from mnemoscope.interventions.graph import writers
from mnemoscope.methods.method import METHODS, check_size

N_STEPS = 120
RATE = 0.1
PENALTY = 0.005
"""The price of an edge, as a share of the divergence of the empty circuit."""
N_CONSTANT_STEPS = 30
_AT_ONCE = 2048
"""Rows of a forward pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MixedRuns:
    """Clean prompts on which edges carry shares of other values, and the divergence from the model's predictions."""

    setting: Setting

    @cached_property
    def weights(self) -> Transformer:
        """The engine's form of the model; InputError where it has none with a part per edge."""
        batch = self.setting.pairs.clean
        found = resumable_transformer(self.setting.hooked, batch.inputs.shape[1], everywhere=True)
        if isinstance(found, str) or any(b.parallel or b.attention.n_sharing > 1 for b in found.blocks):
            reason = found if isinstance(found, str) else "its heads share keys and values, or its blocks are parallel"
            raise InputError(f"edges of this model cannot be mixed, because {reason}; take a method that patches")
        if batch.has_vectors or batch.ragged:
            raise InputError("masks and constants are learned on tokens of equal length; take a method that patches")
        return found

    @cached_property
    def written(self) -> tuple[Mapping[Site, Tensor], Mapping[Site, Tensor]]:
        """The outputs of every writer on the clean and on the corrupted prompts."""
        sides = (self.setting.pairs.clean, self.setting.pairs.corrupted)
        return tuple(_outputs(self.setting, side.inputs) for side in sides)  # pyright: ignore[reportReturnType]

    def divergence(
        self, shares: Float[Tensor, "row edge"], other: Mapping[Site, Tensor], rows: Tensor
    ) -> Float[Tensor, " row"]:
        """KL from the model's predictions, mean over scored positions; `rows` are the prompts."""
        clean = self.setting.pairs.clean
        embedded = {site: value[rows] for site, value in self.written[0].items() if reading_depth(site) < 0}
        beside = {site: value if len(value) == 1 else value[rows] for site, value in other.items()}
        read = torch.arange(clean.inputs.shape[1])
        logits = mixed_logits(self.weights, self.setting.edges, embedded, beside, shares, read)
        kl = F.kl_div(logits.log_softmax(-1), self.predicted[rows], log_target=True, reduction="none").sum(-1)
        scored = clean.scored[rows]
        return torch.where(scored, kl, 0).sum(1) / scored.sum(1)

    @cached_property
    @torch.no_grad()
    def predicted(self) -> Float[Tensor, "prompt pos d_vocab"]:
        """Log-probabilities of the model on the clean prompts."""
        return self.setting.hooked(self.setting.pairs.clean.inputs).log_softmax(-1)

    @cached_property
    def of_empty(self) -> float:
        """The divergence of the empty circuit; InputError where it is none."""
        n = len(self.setting.pairs)
        with torch.no_grad():
            found = self.divergence(torch.zeros(n, len(self.setting.edges)), self.written[1], torch.arange(n))
        if not found.mean() > 0:
            raise InputError("the empty circuit predicts what the model does, so that there is nothing to learn")
        return float(found.mean())


@torch.no_grad()
def _outputs(setting: Setting, tokens: Tensor) -> dict[Site, Float[Tensor, "prompt pos d_model"]]:
    """The output of every writer that edges name."""
    run = record_writers(setting.hooked, tokens, torch.empty(0, dtype=torch.long))
    found = dict(zip(writers(setting.hooked, embeddings="apart"), run.outputs, strict=True))
    together = torch.stack([value for site, value in found.items() if reading_depth(site) < 0]).sum(0)
    return {edge.writer: found.get(edge.writer, together) for edge in setting.edges}


def uniform_gradient_sampling(setting: Setting, seed: int) -> xr.DataArray:
    """UGS: learned probabilities of edges, by uniform gradient sampling."""
    runs, n, n_edges = MixedRuns(setting=setting), len(setting.pairs), len(setting.edges)
    stream, rows, (_, corrupted) = generator(seed, "masks"), torch.arange(n), runs.written
    logit = torch.zeros(n_edges, requires_grad=True)
    optimiser = torch.optim.Adam([logit], lr=RATE)
    scale = runs.of_empty
    for _ in range(N_STEPS):
        probability = logit.detach().sigmoid()
        weight = probability * (1 - probability)
        drawn, value = (torch.rand(n, n_edges, generator=stream, dtype=torch.float32) for _ in range(2))
        uniform = drawn < weight
        shares = torch.where(uniform, value, (drawn < weight / 2 + probability).float()).requires_grad_()
        (gradient,) = torch.autograd.grad(runs.divergence(shares, corrupted, rows).sum() / scale, shares)
        logit.grad = torch.where(uniform, gradient, 0).mean(0) + PENALTY * weight
        optimiser.step()
    found = to_numpy(logit.detach().sigmoid()).astype(float)
    return label_edges(setting.edges, found).assign_coords(chosen=("edge", found > 1 / 2))


def optimal_ablation(setting: Setting, seed: int) -> xr.DataArray:
    """Optimal ablation: the divergence when an edge carries the constant that replaces its writer best."""
    check_size(setting, "optimal-ablation")
    runs, n, n_edges = MixedRuns(setting=setting), len(setting.pairs), len(setting.edges)
    clean, scale = runs.written[0], runs.of_empty
    constants = {site: value.mean((0, 1), keepdim=True).clone().requires_grad_() for site, value in clean.items()}
    sizes = {site: float(value.std()) for site, value in clean.items()}
    optimiser = torch.optim.Adam([{"params": [c], "lr": 0.1 * sizes[s] + 1e-6} for s, c in constants.items()])
    of_writer = torch.stack([torch.tensor([edge.writer != site for edge in setting.edges]) for site in constants])
    rows = torch.arange(n).repeat(len(constants))
    shares = of_writer.float().repeat_interleave(n, 0)
    for _ in range(N_CONSTANT_STEPS):
        optimiser.zero_grad()
        (runs.divergence(shares, constants, rows).sum() / n / scale).backward()
        optimiser.step()
    fixed = {site: value.detach() for site, value in constants.items()}
    with torch.no_grad():
        lost = [_lost_alone(runs, fixed, edges, n) for edges in torch.arange(n_edges).split(max(1, _AT_ONCE // n))]
    return label_edges(setting.edges, to_numpy(torch.cat(lost) / scale).astype(float))


def _lost_alone(runs: MixedRuns, fixed: Mapping[Site, Tensor], edges: Tensor, n: int) -> Float[Tensor, " edge"]:
    """The divergence when one of these edges carries its writer's constant, mean over `n` prompts."""
    shares = (torch.arange(len(runs.setting.edges)) != edges[:, None]).float().repeat_interleave(n, 0)
    return runs.divergence(shares, fixed, torch.arange(n).repeat(len(edges))).unflatten(0, (len(edges), n)).mean(1)


METHODS.add("ugs", uniform_gradient_sampling)
METHODS.add("optimal-ablation", optimal_ablation)
