"""Divergences of a model from the exact predictors of its task, and the nearest of them.

KL(predictor || model) in nats, a mean over the scored positions at which the predictor is defined. The *gap* is the
divergence of the predictor of the task, the n-gram of all symbols that decide, from the nearest simpler one (uniform,
or an n-gram of fewer symbols). The share of it that a model has *closed* is

    closed = 1 - KL(n-gram || model) / gap

0 for the simpler predictor and 1 for the n-gram itself; it is below 0 for a model that is further away than that.

*Shows* whose predictions those of a model are like. *Does not show* that the model computes what a predictor does:
models whose predictions are alike may come to them in different ways.
"""

from collections.abc import Mapping

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Task, generator
from mnemoscope.analyses import to_log_probs
from mnemoscope.core import memoize, metrics
from mnemoscope.systems.markov.predictors import Predicted, same_context
from mnemoscope.systems.markov.tasks import N_GRAMS, MarkovChains

N_PROMPTS = 256
GAINS = tuple(0.5 * step for step in range(2, 41))
"""Factors of frequencies that `linear_readout` tries."""


def chains_of(task: Task) -> MarkovChains:
    """The task; an `InputError` unless it is in-context Markov chains."""
    if not isinstance(task, MarkovChains):
        raise InputError(f"the task must be in-context Markov chains; got {task.name}: take a run of that task")
    return task


@memoize
def prompts(task: MarkovChains, seed: int, n: int = N_PROMPTS, *, split: str = "test") -> Batch:
    """Sequences of the seed's stream `markov prompts`: one object, so that predictors are computed for it once."""
    return task.sample(n, split=split, generator=generator(seed, "markov prompts", split))


def compared(task: MarkovChains) -> tuple[str, ...]:
    """The predictors that models are compared with: all but the one that knows the chain."""
    return tuple(name for name in task.references if name != "chain")


@memoize
def exact_predictions(batch: Batch, task: MarkovChains) -> Mapping[str, Predicted]:
    """Predictions of a batch by predictor; kept, since all checkpoints of a run are compared with them."""
    return {name: task.reference(batch, name) for name in compared(task)}


def own_n_gram(task: MarkovChains) -> str:
    """The n-gram of all symbols that decide."""
    return "trigram" if task.order > 1 else "bigram"


def mean_divergence(reference: Predicted, log_probs: Float[Tensor, "batch pos symbol"]) -> float:
    """KL(reference || model), a mean over the places where the reference is defined, in nats."""
    return float(metrics.kl_divergence(reference, log_probs).nanmean())


@torch.no_grad()
def divergences(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """`kl` over predictor, `closed`, `gap`, and the `nearest` predictor (a name), on sequences of the task.

    Raises InputError for another task.
    """
    task = chains_of(task)
    return from_log_probs(to_log_probs(model(batch.inputs)), task, batch)


def from_log_probs(log_probs: Float[Tensor, "batch pos symbol"], task: MarkovChains, batch: Batch) -> xr.Dataset:
    """The same from a model's log-probabilities."""
    exact = exact_predictions(batch, task)
    found = {name: mean_divergence(predicted, log_probs) for name, predicted in exact.items()}
    own = own_n_gram(task)
    simpler = ["uniform", *(name for name, n in N_GRAMS.items() if n < N_GRAMS[own])]
    gap = min(mean_divergence(exact[own], exact[name].log()) for name in simpler)
    return xr.Dataset(
        {
            "kl": ("predictor", list(found.values())),
            "gap": gap,
            "closed": 1 - found[own] / gap,
            "nearest": min(found, key=found.__getitem__),
        },
        coords={"predictor": list(found)},
        attrs={"unit": "nats; closed: share", "n": len(batch), "weights": "unprocessed"},
    )


@torch.no_grad()
def linear_readout(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """The divergence from the best linear readout of frequencies, softmax(gain · frequency), and its `gain`.

    A frequency is the share of a symbol among those that followed the context before; all are alike where none did.
    That is what attention alone can write. `gain` is the best of `GAINS` for this model. A model whose `kl` here is
    smaller than its divergence from the n-gram is a linear readout rather than the n-gram.
    """
    task = chains_of(task)
    log_probs = to_log_probs(model(batch.inputs))
    shares = frequencies(task, batch)
    found = {gain: mean_divergence((gain * shares).softmax(-1), log_probs) for gain in GAINS}
    best = min(found, key=found.__getitem__)
    return xr.Dataset({"kl": found[best], "gain": best}, attrs={"unit": "nats", "n": len(batch)})


def frequencies(task: MarkovChains, batch: Batch) -> Predicted:
    """The share of each symbol among those that followed the context before."""
    tokens = batch.inputs.long()
    same = same_context(tokens, task.order, task.n_symbols)[:, :, :-1].double()
    counts = same @ torch.nn.functional.one_hot(tokens[:, 1:], task.n_symbols).double()
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, 1 / task.n_symbols)
