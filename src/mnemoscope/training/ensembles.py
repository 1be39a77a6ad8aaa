"""Ensembles of seeds: as many as the memory of a GPU holds train as one program, one group after the other.

How much a run takes is counted on one update: parameters with gradient and moments, what the backward pass keeps, and
the data. If that was too little after all, groups are halved; runs go on from their last saved state.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.monitoring import monitored
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import parameters, untrained, usable_device
from mnemoscope.models.run import Run
from mnemoscope.training.blocks import Blocks, stacked
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import train_together
from mnemoscope.training.recorder import Report

SHARE = 0.8
"""The share of the free memory that a group may take."""
TEMPORARY = 2
"""At its peak the backward pass holds its activations this many times: themselves and their gradients."""


def train_in_groups(
    specs: Sequence[RunSpec],
    paths: Sequence[Path],
    *,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> list[Run]:
    """`train_together` in groups that the memory of the device holds, at least one run; on a CPU that is all."""
    if not specs:
        raise InputError("there is nothing to train: name at least one run")
    size = _fitting(specs[0], usable_device(device)) or len(specs)
    pairs = list(zip(specs, paths, strict=True))
    groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [run for group in groups for run in _train(group, device, report)]


def _train(group: Sequence[tuple[RunSpec, Path]], device: torch.device | str, report: Report | None) -> list[Run]:
    """Train a group, and its halves if it is too large."""
    specs, paths = zip(*group, strict=True)
    try:
        return train_together(specs, paths, device=device, report=report)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise InputError(f"{device} has too little memory for one run of {specs[0].label}") from None
    middle = len(group) // 2  # outside of the handler, which keeps the failed group in memory
    return [run for half in (group[:middle], group[middle:]) for run in _train(half, device, report)]


def _fitting(spec: RunSpec, device: torch.device) -> int | None:
    """The number of runs that the free memory of a device holds, at least one; none: it was not looked up."""
    if device.type != "cuda":
        return None
    return max(1, int(SHARE * free_bytes(device) / bytes_of_run(spec, device)))


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU."""
    return torch.cuda.mem_get_info(device)[0]


def bytes_of_run(spec: RunSpec, device: torch.device | str = "cpu") -> int:
    """Memory that each run of a configuration takes while it trains with others, at its peak.

    Counted on two runs, since one alone is computed in another way.
    """
    specs = [spec, spec]
    initial = {name: value.to(device) for name, value in parameters(untrained(spec, own=True)).items()}
    learner = Learner(spec.model, spec.recipe, [initial, initial], [{}, {}])
    data = Blocks(specs, device)
    watched = stacked([monitored(spec.task, split="test", seed=spec.seed, device=device)] * 2)
    kept = 0
    for examples in (data.batch(0), watched):
        positions = examples.scored.flatten(0, 1).any(0).nonzero()[:, 0]
        storages: dict[int, int] = {}

        def note(value: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
            learner.losses(spec.task.loss, examples, positions)
        kept = max(kept, sum(storages.values()) // 2)
    weights = sum(value.nbytes for value in initial.values())
    return 4 * weights + TEMPORARY * kept + data.nbytes // 2
