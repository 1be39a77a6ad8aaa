"""The attention of both layers to what a statistical induction head needs, and predictions with ideal patterns.

- `previous`: attention of the first layer to the position one back, mean over queries, the best head;
- `successors`: attention of the last layer to positions after earlier occurrences of the query's context, mean over
  queries that have some, the best head; `chance` is what even attention gives.

With an *ideal* pattern, attention of a layer is set by hand: of the first layer to the previous symbol, of the last to
all successors. If the share of the gap that is closed (`distances`) is large then, the rest of the model is right.

*Does not show* what a head copies, nor, by attention alone, that it is needed.
"""

import torch
import xarray as xr
from jaxtyping import Bool
from torch import Tensor

from mnemoscope import Batch, HookedModel, SetPattern, Site, Task, run_with
from mnemoscope.analyses import named_patterns, to_log_probs
from mnemoscope.core.patterns import attends_to, previous
from mnemoscope.systems.markov.analyses.distances import chains_of, from_log_probs
from mnemoscope.systems.markov.predictors import same_context

PREVIOUS = previous()


def _after_same(batch: Batch, query: Tensor, key: Tensor) -> Bool[Tensor, "batch query key"]:
    """True where the key follows an earlier occurrence of the query's context."""
    task = chains_of(getattr(batch.derive, "__self__", None))  # pyright: ignore[reportArgumentType]
    return same_context(batch.inputs.long(), task.order, task.n_symbols).roll(1, -1) & (key > 0)


SUCCESSORS = attends_to("after the same context", _after_same)
IDEAL = {"previous": (0, PREVIOUS), "successors": (-1, SUCCESSORS)}
"""Layer and mechanism of the ideal patterns."""


@torch.no_grad()
def attention_shares(model: HookedModel, batch: Batch) -> xr.Dataset:
    """`previous` and `successors` over head, and `chance` of the latter, in shares of attention."""
    found = named_patterns(model, batch, batch.symbols).pattern
    pattern = torch.as_tensor(found.values)
    n_pos = pattern.shape[-1]
    place = torch.arange(n_pos)
    after = _after_same(batch, place[:, None], place[None]) & (place[:, None] >= place)
    there = after.any(-1)
    first, last = (pattern[:, layer] for layer in (0, -1))
    back = first.diagonal(-1, dim1=-2, dim2=-1)
    on_after = (last * after[:, None]).sum(-1).transpose(1, 2)[there]
    even = (after.double().sum(-1) / (place + 1))[there]
    heads = list(range(pattern.shape[2]))
    return xr.Dataset(
        {
            "previous": ("head", back.double().mean((0, 2)).tolist()),
            "successors": ("head", on_after.double().mean(0).tolist()),
            "chance": float(even.mean()),
        },
        coords={"head": heads},
        attrs={"unit": "share of attention", "n": len(batch)},
    )


def with_ideal_patterns(model: HookedModel, task: Task, batch: Batch) -> xr.DataArray:
    """The share of the gap that is closed with each ideal pattern, over `ideal`; queries without such keys keep theirs.

    The pattern of a layer with several heads is the same in all of them.
    """
    task, shares = chains_of(task), []
    for layer, mechanism in IDEAL.values():
        site = Site(kind="pattern", layer=layer % model.cfg.n_layers)
        logits = run_with(model, batch, [SetPattern(site=site, mechanism=mechanism)])
        shares.append(float(from_log_probs(to_log_probs(logits), task, batch).closed))
    return xr.DataArray(shares, coords={"ideal": list(IDEAL)}, name="closed", attrs={"unit": "share of the gap"})
