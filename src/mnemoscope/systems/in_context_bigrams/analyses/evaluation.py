r"""Loss and accuracy of a model on in-context bigrams, by what stands at a position.

Classes of positions count how often the trigger that stands there has occurred, this time included: `global`, no
trigger; `first`; `second`; `later`, three times or more. In the class `in_context`, twice or more, the output can be
read from the context. A trigger before a noise token is in the class `noise` alone. Loss is :math:`-\log p(y)` in
nats. Accuracy is the probability that the best guess is right, a random one where several are equally good.

*Shows* what the model knows, not how. The first token after a trigger's first occurrence cannot be known; a model that
has fixed triggers can still know there that anything may follow. With loops a trigger that is its own output fills the
rest of its sequence with easy positions of the class `later`.

Sequences on which models of in-context bigrams, or of noisy recall, are measured, and which models have learned.

High in-context accuracy on such sequences shows that a model reads outputs from the context, not how. Part of it needs
no such skill: in a sequence whose trigger is its own output, the last token goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, Gate, HookedModel, InputError, Subject, Task, evaluate, generator
from mnemoscope.analyses import expected_accuracy
from mnemoscope.core import memoize, metrics, one_of
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams, NoisyRecall
from mnemoscope.systems.in_context_bigrams.triggers import TriggerTask

N_SEQUENCES = 64
"""With 128 tokens, 5 frequent triggers and uniform outputs, some 1500 positions that can be predicted."""


@lru_cache(maxsize=16)
def prompts(task: Task, seed: int, n: int = N_SEQUENCES, **changes: Any) -> Batch:
    """`n` fresh sequences of the split `test`, scored everywhere, from the seed's stream `in-context prompts`.

    Changes are fields of the task that differ, such as loops=False.
    """
    everywhere = {"loss_on": "all"} if "loss_on" in {field.name for field in fields(task)} else {}
    changed = replace(task, **{**everywhere, **changes})
    return changed.sample(n, split="test", generator=generator(seed, "in-context prompts"))


def global_bigrams(task: Task) -> Float[Tensor, "token token"]:
    """The probability of each token after each other one, triggers apart, float64; an InputError without bigrams.

    A noise token is never expected, and is followed as the unigrams say.
    """
    return _with_triggers(task).chain


def fixed_triggers(task: Task) -> tuple[int, ...]:
    """The tokens that are triggers in every sequence; none where they are drawn."""
    known = _with_triggers(task)
    return known.fixed_triggers if known.triggers == "fixed" else ()


def _with_triggers(task: Task) -> TriggerTask:
    if not isinstance(task, TriggerTask):
        raise InputError(f"task must be {InContextBigrams.name} or {NoisyRecall.name}; got {task.name}")
    return task


LEARNED = Gate(
    statement="names the output of a trigger that has occurred before in 80 % of unseen sequences' positions or more",
    at_least=0.8,
)
"""The gate of claims about a mechanism, on `learned`."""


@memoize  # every measure of a gated claim asks for it again
def learned(subject: Subject) -> float:
    """In-context accuracy on fresh sequences of the split `test`, the quantity of a gate.

    Raises InputError where the task is another one, or the model is too small for it.
    """
    return accuracy_by_class(subject.model, prompts(subject.task, subject.seed))["in_context"]


CHUNK = 64
"""Sequences in one forward pass: attention over a few hundred tokens leaves the cache with more."""
Classes = Mapping[str, Bool[Tensor, "batch pos"]]


def position_classes(batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
    """The positions of each class; an `InputError` where the batch has no latent `occurrence`."""
    one_of("the latent that classes are of", "occurrence", batch.latents)
    occurrence = batch.latents["occurrence"]
    noise = {"noise": batch.latents["is_noise"]} if "is_noise" in batch.latents else {}
    free = ~noise["noise"] if noise else torch.ones_like(occurrence, dtype=torch.bool)
    return {
        "in_context": (occurrence > 1) & free,
        "first": (occurrence == 1) & free,
        "second": (occurrence == 2) & free,
        "later": (occurrence > 2) & free,
        "global": occurrence == 0,
        **noise,
    }


def evaluate_by_class(
    model: HookedModel, batch: Batch, *, task: Task | None = None, references: Sequence[str] | None = None
) -> xr.Dataset:
    """Loss and accuracy by class of position, beside exact predictors of the task: all of them, or those named.

    Without a task none stand beside. Raises InputError for another task's batch, a model that is too small or predicts
    NaN, or an unknown reference.

    Returns:
        Over position_class `loss`, `accuracy` and `n` (positions); over (reference, position_class) `floor`, the
        reference's own loss, `best_accuracy`, that of its best guess, and `kl`, its divergence from the model, where it
        is defined. NaN where there is no position.
    """
    by = {"position_class": position_classes(batch)}
    return evaluate(model, task, batch, by=by, references=references, chunk=CHUNK)


def accuracy_by_class(model: HookedModel, batch: Batch) -> dict[str, float]:
    """Share of right answers by class of position; NaN without such a position; raises as `evaluate_by_class`."""
    accuracy = evaluate_by_class(model, batch).accuracy
    return {str(name): float(accuracy.sel(position_class=name)) for name in accuracy.position_class.values}


def at_every_position(
    predicted: Float[Tensor, "batch pos d_vocab"], batch: Batch
) -> dict[str, Float[Tensor, "batch pos"]]:
    """`loss` and `accuracy` of log-probabilities."""
    loss = -metrics.at_target(predicted, batch.targets)
    return {"loss": loss, "accuracy": expected_accuracy(predicted, batch.targets)}


def mean_over(values: Float[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]) -> float:
    """Mean over some positions, NaN left out; NaN where there is none."""
    return float(values[mask & ~values.isnan()].mean())
