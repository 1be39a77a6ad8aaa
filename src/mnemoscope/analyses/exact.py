"""`evaluate` on every sequence over the mappings of a split, so that the numbers carry no sampling error.

It shows how well a model predicts; it does not show how.
"""

import xarray as xr

from mnemoscope.analyses.evaluation import ALL, evaluate
from mnemoscope.analyses.learned import every_sequence
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.kept import kept
from mnemoscope.core.protocols import Task
from mnemoscope.core.subject import Subject


def sequences(task: Task, *, split: str = "test", subgroup: str = ALL) -> Batch:
    """All sequences of a subgroup over the mappings of a split.

    Raises:
        InputError: The task has no such subgroup, or cannot enumerate its sequences.
    """
    batch = every_sequence(task, split)
    groups = task.subgroups(batch)
    one_of("subgroup", subgroup, (ALL, *groups))
    return batch if subgroup == ALL else batch.select(groups[subgroup])


@kept
def evaluated(subject: Subject, *, split: str = "test", subgroup: str = ALL) -> xr.Dataset:
    """What `evaluate` says of a model on `sequences`.

    Raises:
        InputError: As `sequences` and `evaluate`.
    """
    return evaluate(subject.model, subject.task, sequences(subject.task, split=split, subgroup=subgroup))


def mean_loss(evaluation: xr.Dataset, subgroup: str = ALL) -> float:
    """Loss of a subgroup in nats, the mean over the scored positions."""
    return float(evaluation.loss.sel(subgroup=subgroup).mean("pos"))
