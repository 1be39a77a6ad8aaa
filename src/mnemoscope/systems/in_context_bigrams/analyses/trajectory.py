"""Measures tracked along training: one number each for predictions, memories, attention and its worth.

| measure | what it is |
| --- | --- |
| `loss_*`, `accuracy_*` | by class of position (`evaluation`) |
| `accuracy_in_context_no_loops`, `..._uniform_outputs`, `..._bigram_outputs` | the same task with one field changed |
| `recall_*` | whether the matrices hold the memories of an induction head (`memory_recall`) |
| `matched_*` | the same if the right output competes with 4 others in all matrices (`recall_among`) |
| `feed_forward_kl` | divergence of the last MLP alone from the global bigrams, in nats |
| `previous_token_score` | attention to the previous token, the best head of the first layer |
| `induction_score`, `attends_after_triggers` | as in `heads`, the best head of the last layer |
| `cost_uniform_layer0`, `..._layer1` | in-context accuracy lost when a layer attends evenly |
| `cost_exact_previous` | the same when layer 0 attends to the previous token |

Memories are read from the heads of the first and the last of two layers with the best scores here. NaN stands where a
model has no such layer, or the task no such field. All checkpoints of a run see the same sequences, so that what
differs along steps is the model. They show nothing of what happened between them.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, SetPattern, Site, Task, run_with
from mnemoscope.analyses import check_fits, normalised, recall_among
from mnemoscope.core import Mechanism
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import at_every_position, mean_over, position_classes
from mnemoscope.systems.in_context_bigrams.analyses.feed_forward import feed_forward_bigrams
from mnemoscope.systems.in_context_bigrams.analyses.heads import (
    EXACT_PREVIOUS,
    UNIFORM,
    labelled_scores,
    logits_and_patterns,
    on_keys,
)
from mnemoscope.systems.in_context_bigrams.analyses.memories import (
    LEAST,
    copied_token,
    previous_token,
    remapped_copy,
)
from mnemoscope.systems.in_context_bigrams.analyses.prompts import fixed_triggers, global_bigrams, prompts

CLASSES = ("in_context", "first", "second", "later", "global")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "no_loops": {"loops": False},
    "bigram_outputs": {"outputs": "bigram", "held_out": 0.0},
    "uniform_outputs": {"outputs": "uniform"},
}
"""Changed fields of the task, by name of the variant."""
RECALLED = ("previous_token", "previous_token_early", "previous_token_late", "remapped_copy", "copied_token")
"""Memories; of positions all, those of the first and those of the last quarter among themselves."""
N_MATCHED = 5
"""Candidates in all matrices: as many as there are triggers in the published task."""
N_TRACKED = 32
"""Sequences: there are many checkpoints."""
N_DRAWS = 2
"""Permutations: their interval is not read."""


@torch.no_grad()
def trajectory(model: HookedModel, task: Task, *, seed: int, n: int = N_TRACKED) -> xr.Dataset:
    """All tracked measures of one checkpoint: scalars, float64, on sequences of the seed's stream `in-context prompts`.

    The task is the one that it was trained on, in-context bigrams or noisy recall, with a split chosen. Raises
    InputError for another task, or a model that is too small for it or predicts NaN.
    """
    batch = prompts(task, seed, n)
    check_fits(model, batch)
    logits, patterns = logits_and_patterns(model, batch)
    at = at_every_position(normalised(logits), batch)
    classes = position_classes(batch)
    found = {
        f"{name}_{group}": mean_over(at[name], classes[group]) for name in ("loss", "accuracy") for group in CLASSES
    }
    accuracy = found["accuracy_in_context"]
    found |= _variants(model, task, seed, n, accuracy)
    scores = labelled_scores(on_keys(patterns, batch), batch).score
    found |= _attention(scores) | _recall(model, task, scores) | {"feed_forward_kl": _feed_forward(model, task)}
    found |= _costs(model, batch, classes["in_context"], accuracy)
    attrs = {"unit": "loss, feed_forward_kl: nats; the rest: share", "n_sequences": n, "weights": "unprocessed"}
    return xr.Dataset(found, attrs=attrs)


def _variants(model: HookedModel, task: Task, seed: int, n: int, own: float) -> dict[str, float]:
    """In-context accuracy on sequences of the task with fields changed; NaN where it has none such."""
    known = {field.name for field in fields(task)}
    found = {}
    for name, changes in VARIANTS.items():
        if not changes.keys() <= known:
            value = math.nan
        elif all(getattr(task, field) == new for field, new in changes.items()):
            value = own
        else:
            batch = prompts(task, seed, n, **changes)
            value = _in_context(model(batch.inputs), batch, position_classes(batch)["in_context"])
        found[f"accuracy_in_context_{name}"] = value
    return found


def _in_context(logits: Float[Tensor, "batch pos d_vocab"], batch: Batch, where: Bool[Tensor, "batch pos"]) -> float:
    return mean_over(at_every_position(normalised(logits), batch)["accuracy"], where)


def _attention(scores: xr.DataArray) -> dict[str, float]:
    of = {"previous_token_score": ("previous_token", 0), "induction_score": ("induction", -1)}
    of["attends_after_triggers"] = ("after_triggers", -1)
    return {name: float(scores.sel(measure=measure)[layer].max()) for name, (measure, layer) in of.items()}


def _recall(model: HookedModel, task: Task, scores: xr.DataArray) -> dict[str, float]:
    if model.cfg.n_layers != 2:
        return {f"{kind}_{name}": math.nan for kind in ("recall", "matched") for name in RECALLED}
    previous, induction = (
        (layer, int(scores.sel(measure=name)[layer].argmax("head")))
        for layer, name in enumerate(("previous_token", "induction"))
    )
    quarter = max(LEAST, task.n_ctx // 4)
    found = (
        previous_token(model, head=previous, n_pos=task.n_ctx, n_draws=N_DRAWS),
        previous_token(model, head=previous, n_pos=quarter, n_draws=N_DRAWS),
        previous_token(model, head=previous, first=task.n_ctx - quarter, n_pos=quarter, n_draws=N_DRAWS),
        remapped_copy(model, writer=previous, head=induction, tokens=fixed_triggers(task) or None, n_draws=N_DRAWS),
        copied_token(model, head=induction, n_draws=N_DRAWS),
    )
    recalls = {f"recall_{name}": float(result.recall) for name, result in zip(RECALLED, found, strict=True)}
    matched = {
        f"matched_{name}": recall_among(result, min(N_MATCHED, result.attrs["n_candidates"]))
        for name, result in zip(RECALLED, found, strict=True)
    }
    return recalls | matched


def _feed_forward(model: HookedModel, task: Task) -> float:
    if model.cfg.attn_only:
        return math.nan
    apart = set(fixed_triggers(task))
    tokens = [token for token in range(task.d_vocab) if token not in apart]
    return float(feed_forward_bigrams(model, global_bigrams(task), tokens=tokens).mean_kl)


def _costs(model: HookedModel, batch: Batch, where: Bool[Tensor, "batch pos"], clean: float) -> dict[str, float]:
    changes: dict[str, tuple[int, Mechanism]] = {
        "cost_uniform_layer0": (0, UNIFORM),
        "cost_uniform_layer1": (1, UNIFORM),
        "cost_exact_previous": (0, EXACT_PREVIOUS),
    }
    found = {}
    for name, (layer, mechanism) in changes.items():
        if layer >= model.cfg.n_layers:
            found[name] = math.nan
            continue
        done = SetPattern(site=Site(kind="pattern", layer=layer), mechanism=mechanism)
        found[name] = clean - _in_context(run_with(model, batch, [done]), batch, where)
    return found
