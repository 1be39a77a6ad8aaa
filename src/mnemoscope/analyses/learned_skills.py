"""The skills that a model has learned: its accuracy where a skill alone gives the answer.

On every sequence over the mappings of a split, so that the numbers are exact. It shows that a model has learned a
skill; it does not show how it does it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import torch
import xarray as xr
from torch import Tensor

from mnemoscope.analyses.evaluation import ALL, evaluate
from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import Task
from mnemoscope.core.runtime import memoize
from mnemoscope.core.skills import means
from mnemoscope.models.subjects import Subject


@lru_cache(maxsize=4)
def every_sequence(task: Task, split: str = "test") -> Batch:
    """All sequences over the mappings of a split, kept for the next time."""
    return task.enumerate(split=split)


@memoize  # every measure of a gated claim asks for it again
def accuracy_by_skill(subject: Subject, *, split: str = "test") -> Mapping[str, float]:
    """Share of right answers among all sequences of the split, by skill; NaN for a skill that none of them tests.

    Raises InputError where the model is too small for the task, or the task cannot enumerate its sequences.
    """
    batch = every_sequence(subject.task, split)
    skills = subject.task.skills(batch)
    tested = torch.stack([*skills.values(), torch.zeros_like(batch.scored)]).any(0)
    predicted = log_probs(subject.model, subject.task, batch, where=tested)
    right = metrics.correct(predicted, batch.targets).double()
    return MappingProxyType(dict(zip(skills, means(right, skills).tolist(), strict=True)))


def learned(subject: Subject, skills: Sequence[str] | None = None) -> float:
    """The smallest accuracy among some skills on unseen mappings (none given: among all), which a gate looks at."""
    found = accuracy_by_skill(subject)
    return float(torch.tensor([found[name] for name in (found if skills is None else skills)]).min())


def sequences(task: Task, *, split: str = "test", subgroup: str = ALL) -> Batch:
    """All sequences of a subgroup over the mappings of a split.

    Raises InputError where the task has no such subgroup, or cannot enumerate its sequences.
    """
    return _sequences(task, split, subgroup)


@lru_cache(maxsize=4)
def _sequences(task: Task, split: str, subgroup: str) -> Batch:
    """The same, kept for the next time."""
    batch = every_sequence(task, split)
    groups = task.subgroups(batch)
    one_of("subgroup", subgroup, (ALL, *groups))
    return batch if subgroup == ALL else batch.select(groups[subgroup])


@memoize
def evaluated(subject: Subject, *, split: str = "test", subgroup: str = ALL) -> xr.Dataset:
    """The result of `evaluate` for a model on `sequences`."""
    task = subject.task
    batch = sequences(task, split=split, subgroup=subgroup)
    return evaluate(subject.model, task, batch, exact=_exact(task, split, subgroup))


@lru_cache(maxsize=4)
def _exact(task: Task, split: str, subgroup: str) -> Mapping[str, Tensor]:
    """The predictions of every exact predictor for `sequences`: models of one task are compared with the same."""
    batch = sequences(task, split=split, subgroup=subgroup)
    return {name: task.reference(batch, name) for name in task.references}


def mean_loss(evaluation: xr.Dataset, subgroup: str = ALL) -> float:
    """Loss of a subgroup in nats, the mean over the scored positions."""
    return float(evaluation.loss.sel(subgroup=subgroup).mean("pos"))
