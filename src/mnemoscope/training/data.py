"""Training batches as a function of the step.

Batches are cut from blocks that are sampled at once; the generator of a block is derived from the seed and the
block's number, so any step's batch can be drawn without the ones before it.
"""

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.training.schedule import task_at

_BLOCK = 2**14  # sequences sampled at once


class Blocks:
    """The stream of training batches of one run."""

    def __init__(self, spec: RunSpec, device: torch.device | str = "cpu"):
        self._spec, self._device = spec, device
        self._steps = max(1, _BLOCK // spec.recipe.batch_size)
        self._key: tuple[int, Task] | None = None

    def batch(self, step: int) -> Batch:
        """The batch of the update number `step`."""
        key = (step // self._steps, task_at(self._spec.task, self._spec.recipe, step))
        size = self._spec.recipe.batch_size
        if key != self._key:
            stream = generator(self._spec.seed, "data", key[0], device=self._device)
            self._block = key[1].sample(self._steps * size, split="train", generator=stream)
            self._key = key
        start = (step % self._steps) * size
        return self._block.select(slice(start, start + size))
