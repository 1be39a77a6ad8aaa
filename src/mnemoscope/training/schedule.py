"""A recipe at a given step: learning rate, held parameters, task and batches. Nothing has to be remembered to continue.

Batches are cut from blocks that are sampled at once, on the device where training happens. The generator of a block is
derived from the seed and the block's number, so the batch of any step can be drawn without those before it. With
`full_batch` every step gets the same batch, all sequences that train.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task, VectorTask, n_outputs
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ParamSite
from mnemoscope.core.specification import Recipe, RunSpec, replace_fields
from mnemoscope.interventions.clamping import Held, make_clamping
from mnemoscope.models.building import build_untrained, detached_parameters, matching_names


def learning_rate(recipe: Recipe, step: int) -> float:
    """Rate of the update number `step` (from 0): linear warm-up, then constant, or a decay to `final_rate`."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if recipe.decay == "constant":
        return recipe.learning_rate
    progress = (step - recipe.warmup_steps) / max(1, recipe.n_steps - recipe.warmup_steps)
    left = (1 + math.cos(math.pi * progress)) / 2 if recipe.decay == "cosine" else 1 - progress
    return recipe.final_rate + (recipe.learning_rate - recipe.final_rate) * left


def frozen_names(recipe: Recipe, names: Iterable[str], step: int) -> frozenset[str]:
    """Names of the parameters that the update number `step` leaves alone; refuses patterns that match none."""
    names = list(names)
    held: frozenset[str] = frozenset(
        place.parameter
        for clamp in recipe.clamps
        if clamp.kind == "hold" and clamp.share(step)
        for place in clamp.places
        if isinstance(place, ParamSite)
    )
    for freeze in recipe.frozen:
        matched = matching_names([freeze.parameters], names)
        if not matched:
            raise InputError(f"recipe.frozen: {freeze.parameters!r} matches no parameter; there are {', '.join(names)}")
        if freeze.start <= step and (freeze.stop is None or step < freeze.stop):
            held |= matched
    return held


def task_at(task: Task, recipe: Recipe, step: int) -> Task:
    """The task that the update number `step` samples from and takes the loss of."""
    for item in sorted(recipe.task_changes, key=lambda item: item.step):
        if item.step <= step:
            task = replace_fields(task, {item.field: item.value}, "task")
    return task


def _size(task: Task) -> tuple[int, int, int]:
    return task.d_vocab, task.n_ctx, task.d_output if isinstance(task, VectorTask) else n_outputs(task)


def check_schedules(spec: RunSpec) -> None:
    """Refuse schedules that name nothing, and early stopping by what is not measured, before anything is written.

    Raises InputError where a pattern matches no parameter, or a change of the task is refused or changes its size. A
    task of vectors has no accuracy to stop at.
    """
    for item in spec.recipe.task_changes:
        changed = task_at(spec.task, spec.recipe, item.step)
        if _size(changed) != _size(spec.task):
            raise InputError("recipe.task_changes must keep the vocabulary, the length and the outputs of the task")
        if spec.recipe.full_batch:
            all_sequences(changed)
    if spec.recipe.full_batch:
        all_sequences(spec.task)
    frozen_names(spec.recipe, detached_parameters(build_untrained(spec, own=True)), 0)
    if spec.recipe.stop_at is not None and isinstance(spec.task, VectorTask):
        raise InputError("recipe.stop_at needs a task of tokens, whose skills have an accuracy")


_BLOCK = 2**14  # sequences sampled at once


class Examples(NamedTuple):
    """The view of training on the batches of one or more runs: `run batch pos`, for vectors with one axis more."""

    inputs: Tensor
    targets: Tensor
    scored: Bool[Tensor, "run batch pos"]

    def select_runs(self, runs: Sequence[int]) -> "Examples":
        """The examples of some of the runs."""
        return Examples(*(part[list(runs)] for part in self))

    def select_rows(self, rows: slice) -> "Examples":
        """Some sequences of every run."""
        return Examples(*(part[:, rows] for part in self))


class TrainingBatches:
    """The training batches of runs that differ in the seed only.

    They are drawn on the CPU, so that a seed has the same data on every device.
    """

    def __init__(self, specs: Sequence[RunSpec], device: torch.device | str = "cpu"):
        self._specs, self._device = list(specs), device
        self._size = specs[0].recipe.batch_size
        self._full = specs[0].recipe.full_batch
        self._steps = specs[0].recipe.n_steps if self._full else max(1, _BLOCK // self._size)
        self._key: tuple[int, Task] | None = None
        self._clamping = make_clamping(specs[0])
        self._sequences: list[Batch] = []

    def batch(self, step: int) -> Examples:
        """The batches of the update number `step`, one a run."""
        key = (step // self._steps, task_at(self._specs[0].task, self._specs[0].recipe, step))
        if key != self._key:
            sequences = [self._sample(spec, step) for spec in self._specs]
            self._block, self._key = stack_batches(sequences), key
            self._sequences = sequences if self._clamping else []
        return self._block if self._full else self._block.select_rows(self._rows(step))

    def held(self, step: int) -> Held | None:
        """The clamps of the update number `step` on its batches, which `batch` has drawn."""
        if self._clamping is None:
            return None
        rows = slice(None) if self._full else self._rows(step)
        return self._clamping.held(step, lambda: [each.select(rows) for each in self._sequences])

    def _rows(self, step: int) -> slice:
        start = (step % self._steps) * self._size
        return slice(start, start + self._size)

    @property
    def nbytes(self) -> int:
        """Memory of the block that the last batch was cut from."""
        return sum(part.nbytes for part in self._block)

    def select_runs(self, runs: Sequence[int]) -> "TrainingBatches":
        """The batches of some of the runs."""
        chosen = TrainingBatches([self._specs[run] for run in runs], self._device)
        if self._key is not None:
            chosen._key, chosen._block = self._key, self._block.select_runs(runs)
            chosen._sequences = [self._sequences[run] for run in runs] if self._sequences else []
        return chosen

    def _sample(self, spec: RunSpec, step: int) -> Batch:
        task = task_at(spec.task, spec.recipe, step)
        if self._full:
            return all_sequences(task).to(self._device)
        stream = generator(spec.seed, "data", step // self._steps)
        return task.sample(self._steps * self._size, split="train", generator=stream).to(self._device)


def all_sequences(task: Task) -> Batch:
    """Every sequence of a task that trains; raises InputError where they cannot be listed, or differ in weight."""
    batch = task.enumerate(split="train")
    if batch.weights is not None and not torch.allclose(batch.weights, batch.weights[:1]):
        raise InputError(
            f"recipe.full_batch needs sequences of equal weight; those of {task.name} differ in weight; draw samples"
        )
    return batch


def stack_batches(batches: Sequence[Batch]) -> Examples:
    """Batches of equal shape along a first axis `run`; raises InputError where shapes differ."""
    if len(shapes := {each.inputs.shape for each in batches}) > 1:
        raise InputError(
            f"runs that train together need batches of one shape; got {sorted(map(tuple, shapes))}; train them apart"
        )
    return Examples(*(torch.stack([getattr(each, part) for each in batches]) for part in Examples._fields))
