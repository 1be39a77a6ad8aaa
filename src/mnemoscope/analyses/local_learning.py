"""Local learning coefficient: the number of directions in which a model's weights are free to move, halved.

The share of weights near w* whose loss is at most ε above L(w*) shrinks as ε^λ (Watanabe 2009). λ is half the number of
weights where each one matters, and smaller where directions are flat or weights make up for each other. Lau et al.
(2023) estimate it from draws of weights w with density exp(-nβ L(w) - γ/2 |w - w*|²), for n sequences:

    λ = nβ (mean of L(w) - L(w*)),   β = 1 / log n.

The draws are those of Langevin chains with a Metropolis step (`analyses.langevin`), on all sequences at once. Their
result does not hang on the step size, as that of chains without it does.

*Shows* how many directions of the weights the loss feels at this temperature, near these weights, on this distribution.
A direction of curvature h counts h nβ / (h nβ + γ) of a half: those that the pull γ outweighs do not count.

*Does not show* what a model computes. Numbers of two temperatures, pulls or sets of sequences are not compared. Where
w* is no minimum, as early in training, chains find smaller losses and the number may be negative; that is flagged.
Chains that still drift are flagged; a chain that never crosses to another valley shows no drift.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.langevin import Drawn, LangevinChains, draw_losses
from mnemoscope.core import metrics
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, suggest_nearest
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, evaluation_mode, resolve_model
from mnemoscope.engine.architecture import transformer_with_parameters
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.models.building import matching_names

Loss = Callable[[Mapping[str, Tensor]], Float[Tensor, ""]]
"""A loss of named weights, from which gradients can be taken."""
MOST_DRIFT = 0.1
"""Largest difference between the later and the earlier half of the draws, as a share of the estimate."""
N_BATCHES = 10
"""Batches of the draws of a chain, whose means say how many of them are independent."""
LEAST_INDEPENDENT = 1.25 * N_BATCHES
"""Independent draws of a chain; one that stands still seems to give one for each batch."""
N_ERRORS = 3
"""Standard errors over chains that a drift exceeds too before it is flagged."""


@check_arguments
def learning_coefficient(
    model: ModelLike,
    task: Task | None,
    batch: Batch,
    *,
    chains: LangevinChains | None = None,
    parameters: Sequence[str] | None = None,
) -> xr.Dataset:
    """The local learning coefficient of a model under its task's loss, from chains that start at its weights.

    Args:
        model: Of tokens, classes or vectors; the model is left as it was.
        task: Its loss is taken; None: the mean cross-entropy, or squared error, over the scored positions.
        batch: The sequences on which the loss is a mean, of equal weight; `task.sample` draws them.
        chains: None: `LangevinChains()`.
        parameters: Names of the weights that move, such as `blocks.0.attn.*`; None: all of them. The others stay.

    Returns:
        As `loss_learning_coefficient`.

    Raises:
        InputError: The model does not fit the batch, sequences have unlike weights, no parameter has such a name, or
            the chains cannot move.

    >>> quick = ms.analyses.LangevinChains(burn_in=40, draws=40)
    >>> found = ms.analyses.learning_coefficient(model, task, batch, chains=quick)
    >>> found.estimate.item() > 0, found.by_chain.dims
    (True, ('chain',))
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    batch.check_scored()
    if batch.weights is not None and not torch.allclose(batch.weights, batch.weights.mean()):
        raise InputError("sequences of batch must have equal weights; these differ; draw some with task.sample")
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    moving = _select(weights, parameters)
    held = {name: value for name, value in weights.items() if name not in moving}
    compute = _model_loss(model, task, batch.to(next(iter(weights.values())).device))
    with evaluation_mode(model):
        found = loss_learning_coefficient(
            lambda params: compute({**held, **params}), moving, n=len(batch), chains=chains
        )
    return found.assign_attrs(loss_unit=batch.loss_unit)


def loss_learning_coefficient(
    loss: Loss, parameters: Mapping[str, Tensor], *, n: int, chains: LangevinChains | None = None
) -> xr.Dataset:
    """The local learning coefficient of any loss at named weights; `n` is the number of observations it is a mean over.

    Returns:
        `estimate` (the mean over chains), `spread` (the standard deviation over chains), `by_chain`; `loss` over
        (chain, draw) and `start_loss`. The health of the chains: `acceptance` and `distance` from the start over
        chain; `step_size`; `effective_draws`, the independent draws of all chains by means of batches; `drift`, the
        estimate from the later half of the draws minus that from the earlier.
        Flags: `negative`; `sticking` (fewer than 12.5 independent draws a chain); `drifting` (by more than three
        standard errors over chains, and .1 of the estimate, or .1 where that is below 1). `attrs` hold n, the
        temperature, the chains, and `health` in words.

    Raises:
        InputError: The loss is not finite at the start or does not depend on the weights, these are no float32 or
            float64, or the chains cannot move.

    >>> flat = lambda weights: weights["a"].square().sum() / 2 + 0 * weights["b"].sum()
    >>> start = {"a": torch.zeros(4), "b": torch.zeros(9)}
    >>> pull = ms.analyses.LangevinChains(localisation=1)
    >>> found = ms.analyses.loss_learning_coefficient(flat, start, n=10_000, chains=pull)
    >>> 1.7 < found.estimate.item() < 2.3
    True
    """
    chains = LangevinChains() if chains is None else chains
    in_range("n", n, 2, float("inf"))
    for name, value in parameters.items():
        if value.dtype not in (torch.float32, torch.float64):
            raise InputError(f"parameters must be float32 or float64; {name} is {value.dtype}; convert the model")
    n_beta = n * (1 / math.log(n) if chains.inverse_temperature is None else chains.inverse_temperature)
    shapes = {name: value.shape for name, value in parameters.items()}
    sizes = [value.numel() for value in parameters.values()]

    def flat_loss(weights: Float[Tensor, " weight"]) -> Float[Tensor, ""]:
        parts = weights.split(sizes)
        return loss({name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)})

    start = torch.cat([value.detach().flatten() for value in parameters.values()])
    drawn = draw_losses(flat_loss, start, n_beta, chains)
    found = label_draws(drawn, n_beta)
    about = {"n": n, "n_weights": sum(sizes), "inverse_temperature": n_beta / n, "localisation": chains.localisation}
    settings = {"burn_in": chains.burn_in, "draws": chains.draws, "sampler_seed": chains.seed}
    return found.assign_attrs(**about, **settings, health=describe_health(found), unit="directions, halved")


def label_draws(drawn: Drawn, n_beta: float) -> xr.Dataset:
    """Estimate, spread and health from the losses that chains visited."""
    scaled = n_beta * (drawn.losses - drawn.start_loss)
    by_chain, half = scaled.mean(1), scaled.shape[1] // 2
    estimate = float(by_chain.mean())
    drifts = scaled[:, half:].mean(1) - scaled[:, :half].mean(1)
    drift, error = float(drifts.mean()), float(drifts.std(ddof=1)) / math.sqrt(len(drifts))
    independent = _count_independent(drawn.losses)
    return xr.Dataset(
        {
            "estimate": estimate,
            "spread": float(by_chain.std(ddof=1)),
            "by_chain": ("chain", by_chain),
            "loss": (("chain", "draw"), drawn.losses),
            "start_loss": drawn.start_loss,
            "acceptance": ("chain", drawn.acceptance),
            "distance": ("chain", drawn.distance),
            "step_size": drawn.step_size,
            "drift": drift,
            "effective_draws": independent,
            "negative": estimate < 0,
            "sticking": independent < LEAST_INDEPENDENT * len(by_chain),
            "drifting": abs(drift) > max(MOST_DRIFT * max(1.0, abs(estimate)), N_ERRORS * error),
        },
        coords={"chain": np.arange(len(by_chain))},
    )


def _count_independent(losses: Float[np.ndarray, "chain draw"]) -> float:
    """The number of independent draws whose mean would vary as much as means of batches do."""
    size = losses.shape[1] // N_BATCHES
    batches = losses[:, : size * N_BATCHES].reshape(len(losses), N_BATCHES, size)
    spread, between = batches.var((1, 2)), batches.mean(2).var(1, ddof=1)
    each = np.divide(spread * N_BATCHES, between, out=np.zeros_like(spread), where=between > 0)
    return float(each.sum())


def describe_health(found: xr.Dataset) -> str:
    """The flags of an estimate in words."""
    said = []
    if found.negative:
        said.append("negative: these weights are no minimum, and the chains found a smaller loss")
    if found.sticking:
        said.append(f"only {float(found.effective_draws):.0f} independent draws: take more draws, or another step_size")
    if found.drifting:
        said.append(f"the loss still drifts ({float(found.drift):+.2f}): take a longer burn_in")
    return "; ".join(said) or "no flag"


def _select(weights: Mapping[str, Tensor], patterns: Sequence[str] | None) -> dict[str, Tensor]:
    """The weights whose names fit one of the patterns; None: all."""
    for pattern in patterns or ():
        if not matching_names([pattern], weights):
            raise InputError(f"parameters: {pattern!r} matches none of the model's{suggest_nearest(pattern, weights)}")
    chosen = dict(weights)
    if patterns is not None:
        names = matching_names(patterns, weights)
        chosen = {name: value for name, value in weights.items() if name in names}
    if not chosen:
        raise InputError("parameters must name at least one; got none; leave it out to move all")
    return chosen


def _model_loss(model: HookedModel, task: Task | None, batch: Batch) -> Loss:
    """The loss on the batch as a function of all weights: through the engine, else through the model itself."""
    columns = batch.scored.any(0).nonzero()[:, 0]
    read = Batch(inputs=batch.inputs[:, columns], targets=batch.targets[:, columns], scored=batch.scored[:, columns])
    build = transformer_with_parameters(model)

    def compute(params: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        if build is not None:
            outputs = build(params)(batch.inputs, OutputPlaces(columns=columns))
        else:
            assert isinstance(model, nn.Module)
            outputs = torch.func.functional_call(model, dict(params), (batch.inputs,))[:, columns]
        if task is not None:
            return task.loss(outputs, read)
        return metrics.loss(outputs, read.targets)[read.scored].mean()

    return compute
