"""The prompts on which a run is watched while it trains, and followed along its checkpoints afterwards."""

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator

N_MONITOR = 512
"""Sequences of each subgroup and split, where they are short."""
MAX_TOKENS = 2**13
"""Tokens of each subgroup and split, where sequences are longer: fewer of them are taken."""


def monitored(task: Task, *, split: str, seed: int, device: torch.device | str = "cpu") -> Batch:
    """The monitoring batch of a run: the same at every step, from the stream `monitor` of the run's seed."""
    n = max(1, min(N_MONITOR, MAX_TOKENS // task.n_ctx))
    return task.monitor(n, split=split, generator=generator(seed, "monitor", split, device=device))
