"""Models that claims are judged on: from a run, untrained, or with weights set by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.core.protocols import HookedModel, Task, resolve_model
from mnemoscope.models.building import build_untrained as fresh
from mnemoscope.models.run import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One trained model, or one planted as a control, with the task that it was made for.

    Attributes:
        task: With a split chosen.
        seed: Of the replicate; a measure that draws prompts draws them from this seed's streams.
        progress: Metrics along `step`, as training logged them; None where nothing was logged.
        trajectory: Measures of every checkpoint along `step`, taken after training; None where none were.

    >>> subject = ms.Subject(model=model, task=task, seed=0)
    >>> sorted(ms.analyses.accuracy_by_skill(subject))
    ['elimination', 'recall']
    """

    model: HookedModel
    task: Task
    seed: int
    progress: xr.Dataset | None = None
    trajectory: xr.Dataset | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", resolve_model(self.model))

    def hooked(self) -> HookedModel:
        """The model, as `Run.hooked` gives that of a run."""
        return self.model


ControlMaker = Callable[[int], dict[str, Subject]]
"""The seed of a case to the subjects of its units, by name."""

FIRST_CONTROL_SEED = 1_000_000
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


def logged(metrics: xr.Dataset | None, name: str) -> xr.DataArray:
    """A metric along `step` as training logged it, with the clamps of training where there were some.

    Raises:
        InputError: where nothing was logged (None).
    """
    if metrics is None:
        raise InputError("there are no metrics of this run; keep metrics.jsonl beside its checkpoints")
    clamped = f"clamped_{name}"
    return metrics[clamped if clamped in metrics else name]


def untrained(units: Mapping[str, Configuration]) -> ControlMaker:
    """A control: the claim's configurations with fresh weights, another seed a case."""
    return partial(_untrained, dict(units))


def _untrained(units: Mapping[str, Configuration], case: int) -> dict[str, Subject]:
    specs = {name: unit.spec(FIRST_CONTROL_SEED + case) for name, unit in units.items()}
    return {
        name: Subject(model=fresh(spec, own=True).eval(), task=spec.task, seed=spec.seed)
        for name, spec in specs.items()
    }


def set_by_hand(name: str, make: Callable[..., HookedModel], task: Task) -> ControlMaker:
    """A control: a model with weights set by hand in the place of the configuration `name`.

    `make` is a function of a module that builds the model, without arguments. The split of the task differs by case.
    """
    return partial(_planted, name, make, task)


def _planted(name: str, make: Callable[..., HookedModel], task: Task, case: int) -> dict[str, Subject]:
    seed = FIRST_CONTROL_SEED + case
    return {name: Subject(model=make(), task=task.for_seed(seed), seed=seed)}


def combined(*plants: ControlMaker) -> ControlMaker:
    """A plant of models for the configurations of all of these; where several have one, that of the last."""
    return partial(_together, plants)


def _together(plants: tuple[ControlMaker, ...], case: int) -> dict[str, Subject]:
    return {name: subject for plant in plants for name, subject in plant(case).items()}
