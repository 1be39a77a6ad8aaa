"""Small tasks for tests, with what the package's own systems lack: a list of all training sequences, classes."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
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


OPEN, CLOSE, END, PAD = 1, 2, 3, 4
BRACKETS = ms.ModelSpec(d_model=16, n_heads=2, n_layers=2, attention_dir="bidirectional", masked=PAD)
RECIPE = ms.Recipe(
    n_steps=400, learning_rate=5e-3, batch_size=64, metrics_every=100, save_every=200, checkpoint_steps=(100,)
)


def bracket_spec(seed: int = 0) -> ms.RunSpec:
    """A run that learns `Brackets` in some seconds."""
    return ms.RunSpec(task=Brackets(), model=BRACKETS, recipe=RECIPE, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Brackets(ms.BaseTask):
    """START, two to six brackets and END, padded: the class of the string is read at the first position."""

    name: ClassVar[str] = "toy-brackets"
    classes: ClassVar[tuple[str, ...]] = ("unbalanced", "balanced")
    references: ClassVar[tuple[str, ...]] = ("exact", "even")
    corruptions: ClassVar[tuple[str, ...]] = ("other",)
    symbols: ClassVar[tuple[str, ...]] = ("[", "(", ")", "]", "_")
    d_vocab: ClassVar[int] = 5
    n_ctx: ClassVar[int] = 8

    def sample(self, n, *, split, generator):
        device = generator.device
        half = torch.randint(1, 4, (n,), generator=generator, device=device)
        balanced = torch.rand(n, generator=generator, device=device) < 0.5
        return self._batch(half, balanced, generator)

    def enumerate(self, *, split):
        rows = [text for half in (1, 2, 3) for text in product((OPEN, CLOSE), repeat=2 * half)]
        inputs = torch.full((len(rows), self.n_ctx), PAD)
        for row, text in zip(inputs, rows, strict=True):
            row[: len(text) + 2] = torch.tensor((0, *text, END))
        return self._of_inputs(inputs)

    def _batch(self, half, balanced, generator):
        every = self.enumerate(split="train")
        lengths, right = every.lengths.to(half.device), every.targets[:, 0].to(half.device)
        fits = (lengths == 2 * half[:, None] + 2) & (right == balanced[:, None].long())
        rows = torch.multinomial(fits.float(), 1, generator=generator)[:, 0]
        return self._of_inputs(every.inputs.to(half.device)[rows])

    def _of_inputs(self, inputs):
        steps = (inputs == OPEN).long() - (inputs == CLOSE).long()
        known = {"total": steps.sum(1), "lowest": steps.cumsum(1).amin(1)}
        right = (known["total"] == 0) & (known["lowest"] >= 0)
        targets = torch.zeros_like(inputs)
        targets[:, 0] = right
        scored = torch.zeros_like(inputs, dtype=torch.bool)
        scored[:, 0] = True
        lengths = (inputs != PAD).sum(1)
        return ms.Batch(
            inputs=inputs, targets=targets, scored=scored, known=known, lengths=lengths, classes=self.classes
        )

    def corrupt(self, batch, *, kind, generator):
        return self._batch(batch.lengths // 2 - 1, batch.targets[:, 0] == 0, generator)

    def reference(self, batch, name):
        result = torch.full((*batch.inputs.shape, 2), torch.nan, dtype=torch.double)
        right = torch.nn.functional.one_hot(batch.targets[:, 0], 2).double()
        result[:, 0] = right if name == "exact" else 0.5
        return result
