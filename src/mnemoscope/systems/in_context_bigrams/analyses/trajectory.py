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

The steps at which measures of a trajectory pass a threshold, and their order.

The onset is the first kept step of a run from which a measure stays past a threshold (`threshold_onset`, not
interpolated). For claims (`onset`), a measure that never does counts as if it did one step after the last, so that
every difference of onsets is a number. Where neither measure has an onset the two are equal, and a claim that one is
earlier is not met.

Over seeds, `learning_order` takes the onset from .5, or for a loss from the middle between its first and its smallest
value. `order_of_onsets` counts pairs of events and the orders that seeds show; an event without an onset comes last.

*Shows* which of two measures was past its threshold first, at the resolution of the checkpoints.

*Does not show* when anything began to form, nor that the first makes the second possible. A recall of .5 and half of a
loss are not the same amount of learning: the order of unlike measures depends on these thresholds.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, SetPattern, Site, Task, run_with
from mnemoscope.analyses import (
    HALF,
    ThresholdDirection,
    check_fits,
    first_step,
    order_of_onsets,
    recall_among,
    threshold_onset,
    to_log_probs,
)
from mnemoscope.core import Mechanism, one_of
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import (
    at_every_position,
    fixed_triggers,
    global_bigrams,
    mean_over,
    position_classes,
    prompts,
)
from mnemoscope.systems.in_context_bigrams.analyses.feed_forward import feed_forward_bigrams
from mnemoscope.systems.in_context_bigrams.analyses.heads import (
    EXACT_PREVIOUS,
    UNIFORM,
    labelled_scores,
    logits_and_patterns,
    on_keys,
)
from mnemoscope.systems.in_context_bigrams.analyses.memories import LEAST, copied_token, previous_token, remapped_copy

MEMORIES: Mapping[str, str] = {
    "W_O2": "recall_copied_token",
    "W_K2": "recall_remapped_copy",
    "W_K1 early": "recall_previous_token_early",
    "W_K1 all": "recall_previous_token",
}
EVENTS: Mapping[str, str] = {
    **MEMORIES,
    "in-context accuracy": "accuracy_in_context",
    "in-context loss": "loss_in_context",
    "global loss": "loss_global",
}
"""Measure of a trajectory, by name of the event."""


def onset(
    trajectory: xr.Dataset | None, name: str, threshold: float = HALF, *, direction: ThresholdDirection = "rise"
) -> float:
    """The first kept step from which a measure stays past the threshold; the last step + 1 if there is none.

    Past means at least (`rise`) or at most (`fall`). Raises InputError without a trajectory, or where it lacks the
    measure or the measure is not defined for this model.
    """
    values = tracked(trajectory, name)
    by = float(threshold_onset(values, threshold, direction=direction).by)
    return float(values.step[-1]) + 1 if math.isnan(by) else by


def tracked(trajectory: xr.Dataset | None, name: str) -> xr.DataArray:
    """One measure of a trajectory, over `step`, finite at every step; errors as of `onset`."""
    if trajectory is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
    one_of("a measure of the trajectory", name, [str(known) for known in trajectory.data_vars])
    values = trajectory[name]
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite at every step of the trajectory; the model may have no such layer")
    return values


def at_step(trajectory: xr.Dataset | None, name: str, step: int) -> float:
    """A measure at one kept step; errors as of `onset`."""
    values = tracked(trajectory, name)
    one_of("a kept step", step, values.step.to_numpy().tolist())
    return float(values.sel(step=step))


def learning_order(trajectories: xr.Dataset, *, events: Mapping[str, str] = EVENTS, within: float = 0.0) -> xr.Dataset:
    """The onset of each of some measures, and their order, in runs that differ in the seed only, over (seed, step).

    Events have names of measures. Onsets that differ by at most `within` steps, such as the spacing of checkpoints,
    tie. Raises InputError without a seed, or where a measure is missing or not finite.

    Returns:
        Beside `order_of_onsets`: `onset` over (event, seed), the first kept step, NaN: never; `order_share` over
        `distinct_order`, the share of seeds that show each order, the commonest first.
    """
    if "seed" not in trajectories.dims:
        raise InputError("trajectories must be along seed; put one run's along it with expand_dims(seed=[...])")
    onsets = {event: first_step(tracked(trajectories, name)) for event, name in events.items()}
    found = order_of_onsets(onsets, within=within)
    counts = Counter(str(order) for order in found.order.values).most_common()
    return found.assign(
        onset=xr.concat(list(onsets.values()), xr.DataArray(list(onsets), dims="event", name="event")),
        order_share=("distinct_order", [count / found.sizes["seed"] for _, count in counts]),
    ).assign_coords(distinct_order=[order for order, _ in counts])


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
    at = at_every_position(to_log_probs(logits), batch)
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
    return mean_over(at_every_position(to_log_probs(logits), batch)["accuracy"], where)


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
