"""Sequences on which models of in-context bigrams, or of noisy recall, are measured, and which models have learned.

High in-context accuracy on such sequences shows that a model reads outputs from the context, not how. Part of it needs
no such skill: in a sequence whose trigger is its own output, the last token goes on.
"""

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, Gate, InputError, Subject, Task, generator
from mnemoscope.core import memoize
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams
from mnemoscope.systems.in_context_bigrams.tasks.noisy_recall import NoisyRecall
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
