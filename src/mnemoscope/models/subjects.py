"""Models on trial: read from a run, untrained, or with weights set by hand."""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope.core.presets import Configuration
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.subject import Subject
from mnemoscope.models.building import untrained as fresh
from mnemoscope.models.run import Run

Plant = Callable[[int], dict[str, Subject]]

FIRST_PLANTED = 1_000_000
"""Seeds and draws of controls start here, where no replicate's are."""


def subject(run: Run, step: int | None = None) -> Subject:
    """A run's model after `step` steps; none: the last checkpoint. InputError where there is no such checkpoint."""
    progress = run.metrics() if (run.path / "metrics.jsonl").exists() else None
    return Subject(
        model=run.hooked(step),
        task=run.spec.task,
        seed=run.spec.seed,
        progress=progress,
        trajectory=run.trajectory(),
    )


def untrained(units: Mapping[str, Configuration]) -> Plant:
    """A control: the claim's configurations with fresh weights, another seed a case."""
    return partial(_untrained, dict(units))


def _untrained(units: Mapping[str, Configuration], case: int) -> dict[str, Subject]:
    specs = {name: unit.spec(FIRST_PLANTED + case) for name, unit in units.items()}
    return {
        name: Subject(model=fresh(spec, own=True).eval(), task=spec.task, seed=spec.seed)
        for name, spec in specs.items()
    }


def planted(name: str, make: Callable[..., HookedModel], task: Task) -> Plant:
    """A control: a model with weights set by hand in the place of the configuration `name`.

    `make` is a function of a module that builds the model, without arguments. The split of the task differs by case.
    """
    return partial(_planted, name, make, task)


def _planted(name: str, make: Callable[..., HookedModel], task: Task, case: int) -> dict[str, Subject]:
    seed = FIRST_PLANTED + case
    return {name: Subject(model=make(), task=task.for_seed(seed), seed=seed)}


def together(*plants: Plant) -> Plant:
    """A plant of models for the configurations of all of these; where several have one, that of the last."""
    return partial(_together, plants)


def _together(plants: tuple[Plant, ...], case: int) -> dict[str, Subject]:
    return {name: subject for plant in plants for name, subject in plant(case).items()}
