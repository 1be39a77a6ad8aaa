"""A training that went as prescribed: measures along the steps, planted in the place of those of a run.

For claims about the order of learning, which read nothing else. The models beside them are untrained.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from mnemoscope.core.presets import Configuration
from mnemoscope.core.subject import Subject
from mnemoscope.models.subjects import untrained

Course = tuple[tuple[float, float], ...]
"""Steps and values: straight in between, constant before the first and after the last."""


def jump(step: float, *, low: float = 0.0, high: float = 1.0) -> Course:
    """The course of a measure that is `low` before a step and `high` from then on."""
    return ((step - 0.5, low), (step, high))


def following(
    units: Mapping[str, Configuration], courses: Mapping[str, Mapping[str, Course]]
) -> Callable[[int], dict[str, Subject]]:
    """A control: trajectories in the place of the claim's configurations, at the steps that these keep.

    Args:
        units: Of the claim.
        courses: By unit, the course of every measure.
    """
    return partial(_following, dict(units), {name: dict(measures) for name, measures in courses.items()})


def _following(
    units: Mapping[str, Configuration], courses: Mapping[str, Mapping[str, Course]], case: int
) -> dict[str, Subject]:
    fresh = untrained(units)(case)
    return {name: replace(fresh[name], trajectory=_trajectory(units[name], courses[name])) for name in units}


def _trajectory(unit: Configuration, courses: Mapping[str, Course]) -> xr.Dataset:
    steps = np.array(unit.spec(0).recipe.checkpoints)
    values = {name: ("step", np.interp(steps, *np.transpose(course))) for name, course in courses.items()}
    return xr.Dataset(values, coords={"step": steps})
