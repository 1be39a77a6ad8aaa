"""When the paths of a circuit set in over training, and when the symbols that they fetch are learned.

Attention along a path is that of the head that attends most along it, averaged over 32 sequences, at every kept
checkpoint (`report.trajectory`); the source linked checkpoints by straight lines, here a path sets in at the first
checkpoint at which it has half of its attention. *Shows* what comes first; *does not show* that it is needed for what
comes next.
"""

from itertools import product

import numpy as np
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.retrieval.analyses.circuit import LEVEL


def path_name(place: int, to: int) -> str:
    """A path as trajectories have it."""
    return f"{place}→{to}"


def surviving(trajectory: xr.Dataset, rise: xr.DataArray) -> xr.DataArray:
    """Attention along the paths of circuits.

    Args:
        trajectory: From `track`, over (step,) or (seed, step).
        rise: Of one skill, over (layer, head, place, to) and as many seeds: from `path_table`.

    Returns:
        Over (path, step), and seed: NaN where the path is in no circuit of that seed. Only paths that are in one.

    Raises:
        InputError: The trajectory is of another task.
    """
    needed = rise.notnull().any(("layer", "head"))
    names = {
        path_name(place, to): needed.sel(place=place, to=to, drop=True)
        for place, to in product(rise.place.values.tolist(), rise.to.values.tolist())
        if bool(needed.sel(place=place, to=to).any())
    }
    if missing := [name for name in names if name not in trajectory]:
        raise InputError(f"the trajectory has no attention along {', '.join(missing)}; `mnemoscope track` takes it")
    courses = [trajectory[name].where(there) for name, there in names.items()]
    if not courses:
        return xr.DataArray(np.zeros((0, trajectory.sizes["step"])), dims=("path", "step"), coords={"path": []})
    return xr.concat(courses, xr.DataArray(list(names), dims="path", name="path")).rename("attention")


def first_above(values: xr.DataArray, level: float = LEVEL) -> xr.DataArray:
    """The first step at which a measure is at or above a level; NaN where it never is.

    Args:
        values: Over step and other dimensions.
        level: In the unit of the measure.
    """
    return values.step.where(values >= level).min("step")
