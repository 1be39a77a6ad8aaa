"""A minimal model of the statistical induction head: one vector and one matrix, and the course of their training.

Edelman et al. 2024. With one-hot symbols e, at position t,

    h_j = sum over i <= j of softmax(v)_(j - i) e_i      layer 1: attention by distance alone
    logits_t = sum over j <= t of (e_t W h_j) e_j        layer 2: a bilinear form, without a softmax

Both start at zero and are trained by plain gradient steps, each at its own rate. With all of v on distance 1 and W a
multiple of the identity the logits are counts of what followed the symbol before: a linear readout of the bigram.
"""

import math
from dataclasses import dataclass

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, generator
from mnemoscope.analyses import to_log_probs
from mnemoscope.core import metrics
from mnemoscope.systems.markov.analyses.course import N_TRACKED
from mnemoscope.systems.markov.analyses.distances import from_log_probs, prompts
from mnemoscope.systems.markov.tasks import MarkovChains

BATCH_SIZE, N_STEPS, EVERY = 64, 1000, 10
DISTANCE_RATE, SCORE_RATE = 1.0, 1e-3
"""Step sizes of `distances`, as in the authors' code, and of `scores`, with which 1,000 steps reach the bigram."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimalModel:
    """Weights of both layers: `distances` (v) from 0 on, and `scores` (W) of a query's symbol and a key's."""

    distances: Float[Tensor, " distance"]
    scores: Float[Tensor, "query key"]

    def logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos symbol"]:
        """Logits of the next symbol after every position."""
        symbols = torch.nn.functional.one_hot(tokens.long(), len(self.scores)).to(self.scores)
        keys = (_patterns(self.distances[: tokens.shape[1]]) @ symbols) @ self.scores.T
        of_all_queries = (keys[..., None] * symbols[..., None, :]).cumsum(1)
        return torch.einsum("bpq,bpqs->bps", symbols, of_all_queries)

    def looking_back(self) -> "MinimalModel":
        """The same with layer 1 set by hand: all attention goes to the symbol before."""
        ideal = torch.full_like(self.distances, -math.inf)
        ideal[1] = 0.0
        return MinimalModel(distances=ideal, scores=self.scores)


def _patterns(distances: Float[Tensor, " distance"]) -> Float[Tensor, "query key"]:
    """Attention by distance; a query at which no key has a finite score attends to itself."""
    place = torch.arange(len(distances))
    back = place[:, None] - place
    scores = distances[back.clamp(min=0)].masked_fill(back < 0, -math.inf)
    alone = scores.isneginf().all(-1, keepdim=True) & (back == 0)
    return scores.masked_fill(alone, 0.0).softmax(-1)


def train_minimal(
    task: MarkovChains,
    seed: int,
    *,
    distance_rate: float = DISTANCE_RATE,
    score_rate: float = SCORE_RATE,
    n_steps: int = N_STEPS,
) -> tuple[MinimalModel, xr.Dataset]:
    """A minimal model that is trained on fresh sequences by gradient descent, in float64, and its course.

    The course has `kl_*`, `closed` (analyses.distances), `previous` (attention of the last query to the position
    before) and `closed_previous` (the share of the gap with layer 1 set by hand) over `step`, every ten steps.
    """
    draws, test = generator(seed, "minimal model"), prompts(task, seed, N_TRACKED)
    model = MinimalModel(
        distances=torch.zeros(task.n_ctx, dtype=torch.double, requires_grad=True),
        scores=torch.zeros(task.n_symbols, task.n_symbols, dtype=torch.double, requires_grad=True),
    )
    rates = ({"params": [model.distances], "lr": distance_rate}, {"params": [model.scores], "lr": score_rate})
    optimizer = torch.optim.SGD(rates)
    rows = [_measures(model, task, test)]
    for step in range(1, n_steps + 1):
        batch = task.sample(BATCH_SIZE, split="train", generator=draws)
        loss = metrics.loss(model.logits(batch.inputs), batch.targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            rows.append(_measures(model, task, test))
    course = {name: ("step", [row[name] for row in rows]) for name in rows[0]}
    steps = range(0, n_steps + 1, EVERY)
    return model, xr.Dataset(course, {"step": steps}, {"unit": "kl: nats; the rest: share", "n_sequences": len(test)})


@torch.no_grad()
def _measures(model: MinimalModel, task: MarkovChains, batch: Batch) -> dict[str, float]:
    now, ideal = (
        from_log_probs(to_log_probs(each.logits(batch.inputs)), task, batch) for each in (model, model.looking_back())
    )
    return {
        **{f"kl_{name}": float(now.kl.sel(predictor=name)) for name in now.predictor.values},
        "closed": float(now.closed),
        "previous": float(model.distances.softmax(0)[1]),
        "closed_previous": float(ideal.closed),
    }
