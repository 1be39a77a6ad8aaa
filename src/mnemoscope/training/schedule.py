"""The prescriptions of a recipe at a given step. Nothing has to be remembered to continue a run."""

import math
from collections.abc import Iterable

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task, VectorTask
from mnemoscope.core.specification import Recipe, RunSpec, change
from mnemoscope.models.building import matching, parameters, untrained


def learning_rate(recipe: Recipe, step: int) -> float:
    """Rate of the update number `step` (from 0): linear warm-up, then constant or a cosine that ends at zero."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if recipe.decay == "constant":
        return recipe.learning_rate
    progress = (step - recipe.warmup_steps) / max(1, recipe.n_steps - recipe.warmup_steps)
    return recipe.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def frozen(recipe: Recipe, names: Iterable[str], step: int) -> frozenset[str]:
    """Names of the parameters that the update number `step` leaves alone; refuses patterns that match none."""
    names = list(names)
    held: frozenset[str] = frozenset()
    for freeze in recipe.frozen:
        matched = matching([freeze.parameters], names)
        if not matched:
            raise InputError(f"recipe.frozen: {freeze.parameters!r} matches no parameter; there are {', '.join(names)}")
        if freeze.start <= step and (freeze.stop is None or step < freeze.stop):
            held |= matched
    return held


def task_at(task: Task, recipe: Recipe, step: int) -> Task:
    """The task that the update number `step` samples from and takes the loss of."""
    for item in sorted(recipe.task_changes, key=lambda item: item.step):
        if item.step <= step:
            task = change(task, {item.field: item.value}, "task")
    return task


def _size(task: Task) -> tuple[int, int, int | None]:
    return task.d_vocab, task.n_ctx, task.d_output if isinstance(task, VectorTask) else None


def check_schedules(spec: RunSpec) -> None:
    """Refuse schedules that name nothing, and early stopping by what is not measured, before anything is written.

    Raises InputError where a pattern matches no parameter, or a change of the task is refused or changes its size. A
    task of vectors has no accuracy to stop at.
    """
    for item in spec.recipe.task_changes:
        changed = task_at(spec.task, spec.recipe, item.step)
        if _size(changed) != _size(spec.task):
            raise InputError("recipe.task_changes must keep the vocabulary, the length and the outputs of the task")
    frozen(spec.recipe, parameters(untrained(spec, own=True)), 0)
    if spec.recipe.stop_at is not None and isinstance(spec.task, VectorTask):
        raise InputError("recipe.stop_at needs a task of tokens, whose skills have an accuracy")
