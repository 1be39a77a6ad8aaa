"""Stand-ins for a trained model as controls: an exact predictor, or a training that went as prescribed.

A predictor is for what looks at predictions only: there is nothing inside, so whatever hooks it or reads its weights
refuses it or finds none. A prescribed training is for claims about the order of learning, which read nothing but
measures along the steps; the models beside them are untrained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.presets import Configuration
from mnemoscope.core.protocols import Task
from mnemoscope.models.subjects import Subject, untrained

UNIFORM = "uniform"
"""All answers of the task alike, at every position."""


@dataclass(frozen=True)
class Predictor:
    """A stand-in for a model that says what a reference of the task says, or `UNIFORM`.

    Choose the split of the task, if the reference depends on it.
    """

    task: Task
    reference: str = UNIFORM

    @property
    def blocks(self) -> tuple[()]:
        """It has no layers."""
        return ()

    @property
    def hook_dict(self) -> Mapping[str, Any]:
        """Nor has it hook points."""
        return {}

    @property
    def cfg(self) -> Any:
        """The sizes of the task."""
        return SimpleNamespace(d_vocab=self.task.d_vocab, n_ctx=self.task.n_ctx)

    def __call__(self, input: Int[Tensor, "batch pos"], **_: Any) -> Float[Tensor, "batch pos d_vocab"]:
        """Log-probabilities in float64; all alike, token by token, where the reference is undefined."""
        if self.reference == UNIFORM:
            probabilities = torch.zeros(*input.shape, self.task.d_vocab, dtype=torch.double, device=input.device)
            probabilities[..., list(self.task.answers)] = 1 / len(self.task.answers)
        else:
            unknown = torch.cat((input[:, 1:], torch.zeros_like(input[:, :1])), 1)
            batch = Batch(inputs=input, targets=unknown, scored=torch.ones_like(input, dtype=torch.bool))
            probabilities = self.task.reference(batch, self.reference)
        return probabilities.log().nan_to_num(nan=0.0, neginf=-torch.inf)

    def named_parameters(self, *_: Any, **__: Any) -> tuple[()]:
        """It has no parameters."""
        return ()

    def run_with_hooks(self, *_: Any, **__: Any) -> NoReturn:
        """It has no activations; nor do `run_with_cache` and `hooks` have any."""
        raise NotImplementedError(f"the predictor {self.reference} has no activations; take a model")

    run_with_cache = hooks = run_with_hooks


def predict_exactly(units: Mapping[str, Configuration], reference: str) -> Callable[[int], dict[str, Subject]]:
    """A control: a predictor in the place of all of the claim's configurations, another split a case."""
    return partial(_predicting, dict(units), reference)


def _predicting(units: Mapping[str, Configuration], reference: str, case: int) -> dict[str, Subject]:
    subjects = untrained(units)(case)
    return {name: replace(each, model=Predictor(each.task, reference)) for name, each in subjects.items()}


Course = tuple[tuple[float, float], ...]
"""Steps and values: straight in between, constant before the first and after the last."""


def step_course(step: float, *, low: float = 0.0, high: float = 1.0) -> Course:
    """The course of a measure that is `low` before a step and `high` from then on."""
    return ((step - 0.5, low), (step, high))


Followed = Literal["trajectory", "progress"]
"""The record of a training: measures of its kept checkpoints (`trajectory`), or its logged metrics (`progress`)."""


def prescribe_course(
    units: Mapping[str, Configuration],
    courses: Mapping[str, Mapping[str, Course]],
    *,
    followed: Followed = "trajectory",
) -> Callable[[int], dict[str, Subject]]:
    """A control: trajectories in the place of the claim's configurations `units`, at the steps that these keep.

    `courses` has the course of every measure by unit. With `followed="progress"` they are metrics, at the steps that
    training logs.
    """
    return partial(_following, dict(units), {name: dict(measures) for name, measures in courses.items()}, followed)


def _following(
    units: Mapping[str, Configuration], courses: Mapping[str, Mapping[str, Course]], followed: Followed, case: int
) -> dict[str, Subject]:
    fresh = untrained(units)(case)
    return {
        name: replace(fresh[name], **{followed: prescribed(units[name], courses[name], followed)}) for name in units
    }


def prescribed(unit: Configuration, courses: Mapping[str, Course], followed: Followed) -> xr.Dataset:
    """Courses at the steps at which a run of this configuration is followed, along `step`."""
    recipe = unit.spec(0).recipe
    at = recipe.checkpoints if followed == "trajectory" else range(0, recipe.n_steps + 1, recipe.metrics_every)
    steps = np.array(at)
    values = {name: ("step", np.interp(steps, *np.transpose(course))) for name, course in courses.items()}
    return xr.Dataset(values, coords={"step": steps})
