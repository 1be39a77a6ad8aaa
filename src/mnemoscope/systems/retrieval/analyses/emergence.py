"""The steps at which the paths of a circuit appear in training, and those at which their symbols are learned.

Attention along a path is that of the head that attends most along it, averaged over 32 sequences, at every kept
checkpoint (`report.trajectory`). The source linked checkpoints by straight lines; here a path appears at the first
checkpoint at which it has half of its attention.

*Shows* what comes first; *does not show* that it is needed for what comes next.
"""

from itertools import product

import numpy as np
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.retrieval.analyses.chain_attention import path_name


def surviving(trajectory: xr.Dataset, rise: xr.DataArray) -> xr.DataArray:
    """Attention along the paths of circuits, from a trajectory over step, and seed, and the `rise` of one skill.

    Only paths in some circuit are kept, over (path, step), and seed: NaN where the path is in no circuit of that seed.
    """
    needed = rise.notnull().any(("layer", "head"))
    ends = product(rise.place.values.tolist(), rise.to.values.tolist())
    paths = [(place, to) for place, to in ends if bool(needed.sel(place=place, to=to).any())]
    names = [path_name(*path) for path in paths]
    if missing := [name for name in names if name not in trajectory]:
        raise InputError(f"the trajectory has no attention along {', '.join(missing)}; `mnemoscope track` takes it")
    if not paths:
        return xr.DataArray(np.zeros((0, trajectory.sizes["step"])), dims=("path", "step"), coords={"path": []})
    courses = [
        trajectory[name].where(needed.sel(place=place, to=to, drop=True))
        for name, (place, to) in zip(names, paths, strict=True)
    ]
    places, tos = zip(*paths, strict=True)
    found = xr.concat(courses, xr.DataArray(names, dims="path", name="path")).rename("attention")
    return found.assign_coords(place=("path", list(places)), to=("path", list(tos)))


def first_true_step(holds: xr.DataArray) -> xr.DataArray:
    """The first step at which something holds; NaN where it never does."""
    return holds.step.where(holds).min("step")
