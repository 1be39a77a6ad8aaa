"""The stream of training batches: cut from blocks that are sampled at once, on the device where training happens.

The generator of a block is derived from the seed and the block's number, so the batch of any step can be drawn without
those before it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.training.schedule import task_at

_BLOCK = 2**14  # sequences sampled at once


class Examples(NamedTuple):
    """The view of training on the batches of one or more runs: `run batch pos`, for vectors with one axis more."""

    inputs: Tensor
    targets: Tensor
    scored: Bool[Tensor, "run batch pos"]

    def of(self, runs: Sequence[int]) -> "Examples":
        """The examples of some of the runs."""
        return Examples(*(part[list(runs)] for part in self))

    def rows(self, rows: slice) -> "Examples":
        """Some sequences of every run."""
        return Examples(*(part[:, rows] for part in self))


class Blocks:
    """The training batches of runs that differ in the seed only."""

    def __init__(self, specs: Sequence[RunSpec], device: torch.device | str = "cpu"):
        self._specs, self._device = list(specs), device
        self._size = specs[0].recipe.batch_size
        self._steps = max(1, _BLOCK // self._size)
        self._key: tuple[int, Task] | None = None

    def batch(self, step: int) -> Examples:
        """The batches of the update number `step`, one a run."""
        key = (step // self._steps, task_at(self._specs[0].task, self._specs[0].recipe, step))
        if key != self._key:
            self._block = stacked([self._sample(spec, step) for spec in self._specs])
            self._key = key
        start = (step % self._steps) * self._size
        return self._block.rows(slice(start, start + self._size))

    @property
    def nbytes(self) -> int:
        """Memory of the block that the last batch was cut from."""
        return sum(part.nbytes for part in self._block)

    def of(self, runs: Sequence[int]) -> "Blocks":
        """The batches of some of the runs."""
        chosen = Blocks([self._specs[run] for run in runs], self._device)
        if self._key is not None:
            chosen._key, chosen._block = self._key, self._block.of(runs)
        return chosen

    def _sample(self, spec: RunSpec, step: int) -> Batch:
        stream = generator(spec.seed, "data", step // self._steps, device=self._device)
        n_sequences = self._steps * self._size
        return task_at(spec.task, spec.recipe, step).sample(n_sequences, split="train", generator=stream)


def stacked(batches: Sequence[Batch]) -> Examples:
    """Batches of equal shape along a first axis `run`."""
    return Examples(*(torch.stack([getattr(each, part) for each in batches]) for part in Examples._fields))
