"""Small tasks for tests, with what the package's own systems lack: a list of all training sequences, classes."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar
from unittest import mock

import torch

import mnemoscope as ms


@dataclass(frozen=True, kw_only=True)
class Sums(ms.BaseTask):
    """a + b modulo n, read at b; the pairs that train are drawn by `split_seed`."""

    name: ClassVar[str] = "toy-sums"
    n: int = 5
    split_seed: int | None = None
    repeats: int = 0
    """Training sequences that are listed twice as likely."""

    @property
    def d_vocab(self) -> int:
        return self.n

    @property
    def n_ctx(self) -> int:
        return 2

    def _pairs(self, split: str) -> torch.Tensor:
        pairs = torch.cartesian_prod(torch.arange(self.n), torch.arange(self.n))
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(self.split_seed or 0))
        n_train = len(pairs) * 4 // 5
        return pairs[order[:n_train] if split == "train" else order[n_train:]]

    def _batch(self, pairs: torch.Tensor) -> ms.Batch:
        sums = pairs.sum(1, keepdim=True) % self.n
        scored = torch.tensor([[False, True]], device=pairs.device).repeat(len(pairs), 1)
        return ms.Batch(inputs=pairs, targets=sums.repeat(1, 2), scored=scored)

    def sample(self, n, *, split, generator):
        pairs = self._pairs(split).to(generator.device)
        return self._batch(pairs[torch.randint(len(pairs), (n,), generator=generator, device=generator.device)])

    def enumerate(self, *, split):
        pairs = self._pairs(split)
        weights = torch.ones(len(pairs))
        weights[: self.repeats] = 2
        return replace(self._batch(pairs), weights=weights / weights.sum())


@contextmanager
def registered(*tasks: type):
    """The tasks are known by name within the block."""
    ms.TASKS.names()
    with mock.patch.dict(ms.TASKS._items):
        for task in tasks:
            ms.TASKS.add(task.name, task)
        yield
