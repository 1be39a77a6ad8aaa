"""A measure along training steps as rows of numbers, and figures of its rows as labelled arrays again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Series:
    """Any number of series over the same steps.

    Attributes:
        steps: Ascending.
        rows: One series a row.
        template: An array of the dimensions that the rows run over, with their coordinates.
    """

    steps: Float[np.ndarray, " step"]
    rows: Float[np.ndarray, "row step"]
    template: xr.DataArray

    @property
    def defined(self) -> Bool[np.ndarray, " row"]:
        """Rows without a value that is missing or infinite."""
        return np.asarray(np.isfinite(self.rows).all(1))

    def labelled(self, figures: Sequence[Mapping[str, float | str]]) -> xr.Dataset:
        """Figures by name, one set a row, in the dimensions of the series without `step`."""
        dims, shape = self.template.dims, self.template.shape
        arrays = {name: (dims, np.array([row[name] for row in figures]).reshape(shape)) for name in figures[0]}
        return xr.Dataset(arrays, coords=self.template.coords)


def series(values: xr.DataArray, *, at_least: int) -> Series:
    """The rows of an array over `step` and any other dimensions.

    Args:
        values: Numbers or truth values.
        at_least: How many steps are needed.

    Raises:
        InputError: There is no numeric coordinate `step`, it does not ascend from 0 or more, or it is too short.
    """
    if "step" not in values.dims or "step" not in values.coords:
        raise InputError(f"values need a dimension step with its coordinate; got dimensions {tuple(values.dims)}")
    steps = values.step.to_numpy().astype(float)
    if steps[0] < 0 or not (np.diff(steps) > 0).all():
        raise InputError("steps must ascend from 0 or more; sort them (`values.sortby('step')`)")
    if len(steps) < at_least:
        raise InputError(f"this needs at least {at_least} steps; got {len(steps)}")
    values = values.transpose(..., "step")
    rows = values.to_numpy().astype(float).reshape(-1, len(steps))
    return Series(steps=steps, rows=rows, template=values.isel(step=0, drop=True))
