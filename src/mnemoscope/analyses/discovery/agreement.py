"""How far circuits that a search found are from the truth that `exact` enumerates.

`size_ratio`: edges by those of the smallest circuit that reaches the target. `jaccard`: shared edges by edges of
either, with the minimal circuit for which that is highest. `gap`: the highest faithfulness of any circuit of that size
minus its own.

It shows how good a search is on this model and these prompts. It does not show that the same search is as good where
the truth cannot be had.
"""

import numpy as np
import xarray as xr

from mnemoscope.analyses.discovery.circuit import along
from mnemoscope.core.errors import InputError


def agreement(truth: xr.Dataset, circuits: xr.DataArray) -> xr.Dataset:
    """Circuits beside the truth.

    Args:
        truth: From `exact`.
        circuits: Of the same model: truth values over edge, after any other axes, which the result keeps.

    Returns:
        `n_edges`, `faithfulness`, `size_ratio`, `jaccard`, `gap` over the axes of `circuits` but edge.

    Raises:
        InputError: The circuits are of another model, or no circuit reaches the target.
    """
    if not truth.sizes["alternative"]:
        raise InputError("no circuit reaches the target of truth, so that nothing can be compared with it")
    circuits = along(truth["edge"].values, circuits).astype(bool)
    places = xr.DataArray(1 << np.arange(circuits.sizes["edge"]), dims="edge")
    size, number = circuits.sum("edge"), (circuits * places).sum("edge")
    both = (circuits & truth.minimal).sum("edge")
    found = truth.faithfulness.sel(number=number).drop_vars("number")
    return xr.Dataset(
        {
            "n_edges": size,
            "faithfulness": found,
            "size_ratio": size / int(truth["size"].min()),
            "jaccard": (both / (size + truth["size"] - both)).max("alternative"),
            "gap": truth.frontier.sel(n_edges=size).drop_vars("n_edges") - found,
        },
        attrs=truth.attrs,
    )
