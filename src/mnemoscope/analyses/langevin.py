"""Langevin chains with a Metropolis step (MALA), which draw weights near those of a model with its loss as energy.

A chain draws from the density exp(-U) with U(w) = nβ L(w) + γ/2 |w - w*|². From w it proposes

    w' = w - ε/2 G ∇U(w) + (ε G)^½ ξ,   ξ normal,

and moves there with the probability that leaves the density as it is (Roberts & Tweedie 1996). So the step size ε
decides how fast a chain moves and not where it ends. A proposal with an infinite or missing loss is refused.

G is diagonal, and chosen in burn-in. Its first half takes G = 1 and keeps the mean of the squared gradient, which in
equilibrium is the mean curvature of U; G is the inverse of that. The second half takes this G and the ε at which .65
of the steps are accepted, or the one that was given.

Every step takes ε times 10^-u with u uniform in (0, 1): long steps cross wide valleys, short ones enter narrow ones.
Steps of one length rarely enter the narrow valleys of a product of weights, and their estimate is too small there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.seeding import fixed_defaults, generator

FlatLoss = Callable[[Float[Tensor, " weight"]], Float[Tensor, ""]]
"""A loss as a function of all weights in one vector."""
ACCEPTED = 0.65
"""Share of accepted steps that burn-in aims at; in many dimensions steps of one length move fastest at .574."""
LEAST_ACCEPTED = 0.05
"""Chains that accept fewer of their steps stand still."""
_SMALLEST = 1e-6
"""Least squared gradient of a weight, as a share of the largest one."""


@dataclass(frozen=True, kw_only=True)
class LangevinChains:
    """The number of chains and steps, and the density they draw from.

    Attributes:
        n_chains: Chains, which start at the same weights and differ in their noise.
        burn_in: Steps of each chain in which the step size is chosen; they are left out.
        draws: Steps of each chain after that; each gives a draw.
        step_size: Largest ε, in units of the inverse curvature; None: chosen in burn-in.
        inverse_temperature: β; None: 1 / log n for n sequences.
        localisation: γ, the pull towards the weights at the start.
        seed: Of the noise; the global generator is left alone.

    >>> ms.analyses.LangevinChains(draws=500).burn_in
    200
    """

    n_chains: int = 4
    burn_in: int = 200
    draws: int = 300
    step_size: float | None = None
    inverse_temperature: float | None = None
    localisation: float = 100.0
    seed: int = 0

    def __post_init__(self) -> None:
        in_range("n_chains", self.n_chains, 2, float("inf"))
        in_range("burn_in", self.burn_in, 20, float("inf"))
        in_range("draws", self.draws, 10, float("inf"))
        in_range("localisation", self.localisation, 0, float("inf"))
        for name in ("step_size", "inverse_temperature"):
            if (given := getattr(self, name)) is not None:
                in_range(name, given, np.finfo(float).tiny, float("inf"))


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The losses that chains visit.

    Attributes:
        losses: After every draw.
        start_loss: At the start.
        acceptance: Share of accepted steps among the draws.
        distance: Of the last draw from the start.
        step_size: Largest ε of the draws.
    """

    losses: Float[np.ndarray, "chain draw"]
    start_loss: float
    acceptance: Float[np.ndarray, " chain"]
    distance: Float[np.ndarray, " chain"]
    step_size: float


@dataclass(frozen=True)
class _State:
    """A place of a chain: weights, their loss, U and its gradient."""

    weights: Tensor
    loss: float
    energy: float
    gradient: Tensor


@torch.enable_grad()
@fixed_defaults()
def draw_losses(loss: FlatLoss, start: Float[Tensor, " weight"], n_beta: float, chains: LangevinChains) -> Drawn:
    """Run all chains from `start`; InputError where the loss cannot be followed, or hardly a step is accepted."""

    def visit(weights: Tensor) -> _State:
        weights = weights.detach().requires_grad_()
        value = loss(weights)
        if not value.requires_grad:
            raise InputError("the loss must depend on the parameters; it is the same whatever they are; name others")
        (gradient,) = torch.autograd.grad(value, weights)
        away, found = weights.detach() - start, value.item()
        energy = n_beta * found + chains.localisation / 2 * float(away.double().square().sum())
        return _State(weights.detach(), found, energy, n_beta * gradient + chains.localisation * away)

    def step(state: _State, root: Tensor, noise: torch.Generator) -> tuple[_State, float]:
        xi = torch.randn(start.shape, generator=noise, dtype=start.dtype).to(start.device)
        proposed = visit(state.weights - root.square() / 2 * state.gradient + root * xi)
        # The noise of the way back is h - ξ, and so the ratio of both densities needs no difference of large numbers.
        h = root / 2 * (state.gradient + proposed.gradient)
        log_ratio = state.energy - proposed.energy - float((h * (h - 2 * xi)).double().sum()) / 2
        accepted = math.exp(min(0.0, log_ratio)) if math.isfinite(log_ratio) else 0.0
        moves = float(torch.rand((), generator=noise, dtype=torch.float64)) < accepted
        return (proposed if moves else state), accepted

    start = start.detach()
    first = visit(start)
    if not math.isfinite(first.loss) or not bool(first.gradient.isfinite().all()):
        raise InputError(
            f"the loss at the start must be finite, with its gradient; got {first.loss}; check the weights"
        )
    lengths = generator(chains.seed, "langevin", "lengths")
    noises = [generator(chains.seed, "langevin", chain) for chain in range(chains.n_chains)]
    states, tuning = [first] * chains.n_chains, _Tuning(start, n_beta, chains)
    losses, shares = np.empty((2, chains.draws, chains.n_chains))
    for number in range(chains.burn_in + chains.draws):
        root = tuning.root * 10 ** (-float(torch.rand((), generator=lengths, dtype=torch.float64)) / 2)
        moved = [step(state, root, noise) for state, noise in zip(states, noises, strict=True)]
        states, accepted = [state for state, _ in moved], [share for _, share in moved]
        if number < chains.burn_in:
            tuning.learn(number, float(np.mean(accepted)), [state.gradient for state in states])
        else:
            losses[number - chains.burn_in] = [state.loss for state in states]
            shares[number - chains.burn_in] = accepted
    if (share := float(shares.mean())) < LEAST_ACCEPTED:
        raise InputError(
            f"step_size must let chains accept at least {LEAST_ACCEPTED:g} of their steps; at {tuning.step_size:.3g} "
            f"they accept {share:.3f}; take a smaller one, or none to have it chosen in a longer burn_in"
        )
    distance = np.array([float((state.weights - start).norm()) for state in states])
    acceptance = shares.mean(0)
    return Drawn(
        losses=losses.T, start_loss=first.loss, acceptance=acceptance, distance=distance, step_size=tuning.step_size
    )


class _Tuning:
    """The step size and the diagonal G while they are chosen."""

    def __init__(self, start: Tensor, n_beta: float, chains: LangevinChains):
        self._chains, self._half = chains, chains.burn_in // 2
        self._scale, self._log_step = torch.ones_like(start), -math.log(n_beta + chains.localisation)
        self._squares, self._log_steps = torch.zeros_like(start), list[float]()

    @property
    def step_size(self) -> float:
        """The present largest ε."""
        return math.exp(self._log_step)

    @property
    def root(self) -> Tensor:
        """The standard deviation of the noise of every weight, (ε G)^½."""
        return (self.step_size * self._scale).sqrt()

    def learn(self, number: int, accepted: float, gradients: list[Tensor]) -> None:
        """Take account of a step of burn-in."""
        first, given = number < self._half, self._chains.step_size
        if first or given is None:
            since = number - (0 if first else self._half)
            self._log_step += 2 * (accepted - ACCEPTED) / math.sqrt(since + 1)
            self._log_steps.append(self._log_step)
        if self._half // 2 <= number < self._half:
            self._squares += torch.stack(gradients).square().mean(0)
        if number == self._half - 1:
            curvature = self._squares / (self._half - self._half // 2) + self._chains.localisation
            self._scale = 1 / curvature.clamp_min(_SMALLEST * float(curvature.max()))
            self._log_step = math.log(len(self._scale) ** (-1 / 3) if given is None else given)
            self._log_steps.clear()
        if number == self._chains.burn_in - 1 and given is None:
            self._log_step = float(np.mean(self._log_steps[len(self._log_steps) // 2 :]))
