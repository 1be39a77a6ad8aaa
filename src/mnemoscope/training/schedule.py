"""What a recipe prescribes at a given step, as pure functions of the step.

Nothing has to be remembered to continue a run.
"""

import math
from collections.abc import Iterable

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import Recipe, RunSpec, change
from mnemoscope.models.building import build, matching, parameters


def learning_rate(recipe: Recipe, step: int) -> float:
    """Rate of the update number `step` (from 0): linear warm-up, then constant or a cosine that ends at zero."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if recipe.decay == "constant":
        return recipe.learning_rate
    progress = (step - recipe.warmup_steps) / max(1, recipe.n_steps - recipe.warmup_steps)
    return recipe.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def frozen(recipe: Recipe, names: Iterable[str], step: int) -> frozenset[str]:
    """Names of the parameters that the update number `step` leaves alone.

    Raises:
        InputError: A pattern of the recipe matches no parameter.
    """
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
    """The task that the update number `step` samples from.

    Raises:
        InputError: A change names no field of the task or gives it a value that it refuses.
    """
    for item in sorted(recipe.task_changes, key=lambda item: item.step):
        if item.step <= step:
            task = change(task, {item.field: item.value}, "task")
    return task


def check_schedules(spec: RunSpec) -> None:
    """Refuse schedules that name nothing, before anything is written.

    Raises:
        InputError: A pattern matches no parameter, or a change of the task is refused or changes vocabulary or
            length.
    """
    for item in spec.recipe.task_changes:
        changed = task_at(spec.task, spec.recipe, item.step)
        if (changed.d_vocab, changed.n_ctx) != (spec.task.d_vocab, spec.task.n_ctx):
            raise InputError("recipe.task_changes must keep the vocabulary and the length of the task")
    model = build(spec.model, d_vocab=spec.task.d_vocab, n_ctx=spec.task.n_ctx, seed=spec.seed)
    frozen(spec.recipe, parameters(model), 0)
