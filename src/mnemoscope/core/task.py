"""The base class of tasks, which does what most tasks do alike, and the prompts on which training is monitored.

A task that inherits from it states its sizes and samples sequences; it replaces what it does otherwise. Everything else
asks for the protocol `Task` only, so a task need not inherit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator

T = TypeVar("T", bound="BaseTask")
SEED = "_seed"
"""Names of fields that `for_seed` sets end so."""


@dataclass(frozen=True, kw_only=True)
class BaseTask(ABC):
    """A task without fields, whose subclasses are frozen, keyword-only dataclasses.

    A subclass adds `name`, `d_vocab`, `n_ctx` and `sample`; one whose inputs are vectors adds `d_output` and `parts`.

    >>> class Twice(ms.BaseTask):
    ...     name, d_vocab, n_ctx = "twice", 6, 9
    ...     def sample(self, n, *, split, generator):
    ...         return batch.select(slice(n))
    >>> list(Twice().skills(batch))
    ['answer']
    """

    name: ClassVar[str]
    """Name in run files and on the command line."""
    references: ClassVar[tuple[str, ...]] = ()
    """Names of the exact predictors."""
    corruptions: ClassVar[tuple[str, ...]] = ()
    """Kinds of minimal pairs."""
    wordings: ClassVar[tuple[str, ...]] = ()
    """Names of the corruptions that reword a question and keep its answer, alike on both sides of a pair."""
    clusters: ClassVar[str] = ""
    """Latent whose values name sequences that are no independent observations, such as those of one subject."""
    slot_size: ClassVar[int] = 1
    """Tokens per slot."""
    classes: ClassVar[tuple[str, ...]] = ()
    """Names of classes, where outputs are no tokens: targets are their numbers, and batches carry the names."""

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of tokens; where inputs are vectors, their width."""

    @property
    @abstractmethod
    def n_ctx(self) -> int:
        """Length of the longest input."""

    @abstractmethod
    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of the named split, on the generator's device."""

    @property
    def answers(self) -> Sequence[int]:
        """All classes or tokens; none where targets are vectors."""
        return () if hasattr(type(self), "d_output") else range(len(self.classes) or self.d_vocab)

    def for_seed(self: T, seed: int) -> T:
        """The same task, in which `seed` takes the place of None in every field whose name ends in `_seed`."""
        unset = {f.name: seed for f in fields(self) if f.name.endswith(SEED) and getattr(self, f.name) is None}
        return replace(self, **unset) if unset else self

    def enumerate(self, *, split: str) -> Batch:
        """Raises an `InputError`: there are too many sequences."""
        raise InputError(f"the sequences of {self.name} cannot be enumerated; draw samples")

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """A sample of `n` sequences of equal weight."""
        batch = self.sample(n, split=split, generator=generator)
        return replace(batch, weights=torch.full((n,), 1 / n, device=generator.device))

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Raises an `InputError`: the task makes no minimal pairs."""
        raise InputError(f"the task {self.name} makes no minimal pairs; got kind {kind!r}")

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Raises an `InputError`: the task has no exact predictors."""
        raise InputError(f"the task {self.name} has no exact predictors; got reference {name!r}")

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy over the scored positions, in nats; the mean squared error where targets are vectors."""
        losses = metrics.loss(outputs, batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum().clamp(min=1)

    def subgroups(self, batch: Batch) -> Mapping[str, Bool[Tensor, " batch"]]:
        """No subgroups: all sequences are of one kind."""
        return {}

    def skills(self, batch: Batch) -> Mapping[str, Bool[Tensor, "batch pos"]]:
        """One skill, `answer`, at all scored positions; none where targets are vectors, which are reported by parts."""
        return {} if batch.has_vectors else {"answer": batch.scored}


N_MONITOR = 512
"""Sequences of each subgroup and split, where they are short."""
MAX_TOKENS = 2**13
"""Tokens of each subgroup and split, where sequences are longer: fewer of them are taken."""


def monitoring_batch(task: Task, *, split: str, seed: int, device: torch.device | str = "cpu") -> Batch:
    """The monitoring batch of a run, the same at every step and on every device: the stream `monitor` of its seed."""
    n = max(1, min(N_MONITOR, MAX_TOKENS // task.n_ctx))
    return task.monitor(n, split=split, generator=generator(seed, "monitor", split)).to(device)
