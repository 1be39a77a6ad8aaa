"""A model on trial: what a claim's measure is given."""

from dataclasses import dataclass

import xarray as xr

from mnemoscope.core.protocols import HookedModel, Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One trained model, or one planted as a control, with the task that it was made for.

    Attributes:
        task: With a split chosen.
        seed: Of the replicate; a measure that draws prompts draws them from this seed's streams.
        progress: Metrics along `step`, as training logged them; None where nothing was logged.
        trajectory: Measures of every checkpoint along `step`, taken after training; None where none were.
    """

    model: HookedModel
    task: Task
    seed: int
    progress: xr.Dataset | None = None
    trajectory: xr.Dataset | None = None
