"""The attention of every head to what the circuit of an induction head needs.

Mean attention, over the queries that have such keys, on

- `previous_token`: the token before the query;
- `induction`: the tokens after all earlier occurrences of the query's trigger (an induction head should look there);
- `after_triggers`: tokens that follow any trigger, over all queries with an earlier trigger;
- `after_triggers_elsewhere`: the same over queries that are no trigger.

Attention even over all keys would score `even`: compare with it, since many tokens follow a trigger where triggers are
frequent.

*Does not show* that a head is needed, nor what it copies: patterns are correlational (`causal` intervenes), and
`marked_patterns` shows nothing but the sequences it is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Site
from mnemoscope.analyses import check_fits, named_patterns
from mnemoscope.core import Mechanism, memoize, one_of
from mnemoscope.core.patterns import attends_to, previous, uniform
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import CHUNK

TRIGGER, OUTPUT, BOTH, OTHER = "trigger", "output", "output and trigger", "other"


def _at_triggers(batch: Batch) -> Bool[Tensor, "batch pos"]:
    one_of("the latent that says where triggers stand", "trigger", batch.latents)
    return batch.latents["trigger"] >= 0


def _after_same_trigger(batch: Batch, query: Tensor, key: Tensor) -> Bool[Tensor, "batch query key"]:
    is_trigger, tokens = _at_triggers(batch), batch.inputs
    earlier = (tokens[:, :, None] == tokens[:, None]) & is_trigger[..., None] & (key < query)
    return earlier.roll(1, -1) & (key > 0)


def _after_triggers(batch: Batch, query: Tensor, key: Tensor) -> Bool[Tensor, "batch 1 key"]:
    return (_at_triggers(batch).roll(1, -1) & (key > 0))[:, None]


def _after_triggers_elsewhere(batch: Batch, query: Tensor, key: Tensor) -> Bool[Tensor, "batch query key"]:
    return _after_triggers(batch, query, key) & ~_at_triggers(batch)[..., None]


EXACT_INDUCTION = attends_to("after the same trigger", _after_same_trigger)
"""From a trigger evenly to the tokens after all its earlier occurrences; other queries keep the model's pattern."""
EXACT_PREVIOUS = previous()
UNIFORM = uniform()
MEASURES: dict[str, Mechanism] = {
    "previous_token": EXACT_PREVIOUS,
    "induction": EXACT_INDUCTION,
    "after_triggers": attends_to("after triggers", _after_triggers),
    "after_triggers_elsewhere": attends_to("after triggers, from elsewhere", _after_triggers_elsewhere),
}


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys and the queries that a measure looks at."""

    keys: Bool[Tensor, "batch query key"]
    queries: Bool[Tensor, "batch query"]


def head_attention(model: HookedModel, batch: Batch) -> xr.Dataset:
    """Attention of every head to what the circuit needs, on sequences of in-context bigrams or noisy recall.

    The result has `score` over (measure, layer, head), and `even` and `n` (queries) over measure; NaN where no query
    has such keys. Raises InputError for another task's batch, a model that is too small, or attention that is NaN.
    """
    check_fits(model, batch)
    chunks = [batch.select(rows) for rows in torch.arange(len(batch)).split(CHUNK)]
    total = torch.stack([on_keys(logits_and_patterns(model, chunk)[1], chunk) for chunk in chunks]).sum(0)
    return labelled_scores(total, batch)


@torch.no_grad()
def logits_and_patterns(
    model: HookedModel, batch: Batch
) -> tuple[Float[Tensor, "batch pos d_vocab"], list[Float[Tensor, "batch head_index query key"]]]:
    """The logits and the attention of every layer from one forward pass; an `InputError` where attention is NaN."""
    hooks = [Site(kind="pattern", layer=layer).hook for layer in range(model.cfg.n_layers)]
    logits, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in hooks)
    for layer, hook in enumerate(hooks):  # TransformerLens turns a row of NaN into zeros
        if not (cache[hook].sum(-1) > 0.5).all():
            raise InputError(f"the attention of layer {layer} is NaN; check the weights, or take an earlier checkpoint")
    return logits, [cache[hook] for hook in hooks]


def on_keys(
    patterns: list[Float[Tensor, "batch head_index query key"]], batch: Batch
) -> Float[Tensor, "measure layer head_index"]:
    """Attention on the keys of every measure, added up over sequences and queries, in float64."""
    sums = []
    for where in keys_of(batch).values():
        keys = where.keys.to(patterns[0])
        by_query = [torch.einsum("bhqk,bqk->hq", pattern, keys).double() for pattern in patterns]
        sums.append(torch.stack(by_query).sum(-1))
    return torch.stack(sums)


def labelled_scores(total: Float[Tensor, "measure layer head_index"], batch: Batch) -> xr.Dataset:
    """The means of what `on_keys` added up over all of `batch`."""
    where = keys_of(batch)
    counts = torch.stack([item.queries.sum() for item in where.values()]).double()
    seen = torch.arange(1, batch.inputs.shape[1] + 1)
    even = [(item.keys.sum(-1) / seen)[item.queries].double().mean() for item in where.values()]
    return xr.Dataset(
        {
            "score": (("measure", "layer", "head"), (total.cpu() / counts[:, None, None]).numpy()),
            "even": ("measure", torch.stack(even).numpy()),
            "n": ("measure", counts.long().numpy()),
        },
        coords={"measure": list(where), "layer": list(range(total.shape[1])), "head": list(range(total.shape[2]))},
        attrs={"unit": "share of attention", "n_sequences": len(batch), "weights": "unprocessed"},
    )


@memoize
def keys_of(batch: Batch) -> dict[str, _Keys]:
    """Keys and queries of every measure, kept with the batch for the next model."""
    found = {}
    for name, mechanism in MEASURES.items():
        keys = mechanism.pattern(batch) > 0
        found[name] = _Keys(keys, keys.any(-1))
    return found


def marked_patterns(model: HookedModel, batch: Batch, symbols: Sequence[str]) -> xr.Dataset:
    """Attention, tokens, and the role of each token, on sequences of in-context bigrams or noisy recall.

    `symbols` are the names of all tokens. `named_patterns` gets `role` over (example, key): `trigger`; `output`,
    the token after one; both; or `other`. Raises InputError for another task's batch or a model that is too small.
    """
    one_of("the latent that says where triggers stand", "trigger", batch.latents)
    trigger = batch.latents["trigger"] >= 0
    output = torch.cat((torch.zeros_like(trigger[:, :1]), trigger[:, :-1]), 1)
    names = [OTHER, TRIGGER, OUTPUT, BOTH]
    roles = [[names[place] for place in row] for row in (trigger + 2 * output.int()).tolist()]
    return named_patterns(model, batch, symbols).assign(role=(("example", "key"), roles))
