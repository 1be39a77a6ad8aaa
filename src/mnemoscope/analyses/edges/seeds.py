"""Edges of several seeds by role, where heads of one role may lie in different layers.

In a model of one layer the edges by role are the same in every seed. In a deeper one an edge from one role to another
is there only in seeds where the first lies below the second. A result over seeds then has all edges that some seed
has, and nothing where a seed does not have one: a mean over seeds is one over the seeds that have the edge.

It gives names only. Roles that rank heads across layers need not mean the same in seeds that lay them out differently.
"""

import xarray as xr

from mnemoscope.analyses.edges.roles import edges_by_role
from mnemoscope.analyses.stacking import along
from mnemoscope.core.edge import LOGITS
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS

_ENDS = ("reader", "through", "writer")


def edges_of_seeds(result: xr.Dataset, component: xr.DataArray) -> xr.Dataset:
    """A result over seeds and edges with heads called by their roles.

    Args:
        result: Over `seed` and `edge`, with `writer`, `reader` and `through` along `edge`.
        component: Over (seed, role): the head or MLP (`L0H1`) that has the role, every one of the model.

    Returns:
        As `edges_by_role` gives it, along `seed`: NaN, and an empty `component`, where a seed lacks the edge.

    Raises:
        InputError: The result has no seeds or no edges, or roles are missing.
    """
    if "seed" not in result.dims or "edge" not in result.dims:
        raise InputError(
            f"a result over edges and seeds has the dimensions edge and seed; got {', '.join(map(str, result.dims))}"
        )
    roles = [str(role) for role in component.role.values]
    each = {}
    for seed in result.seed.values.tolist():
        named = dict(zip(component.sel(seed=seed).values.tolist(), roles, strict=True))
        each[seed] = edges_by_role(result.sel(seed=seed, drop=True), named)
    ends = {
        str(label): tuple(str(found[end].values[i]) for end in _ENDS)
        for found in each.values()
        for i, label in enumerate(found.edge.values)
    }
    rank = {name: place for place, name in enumerate(("input", *EMBEDDINGS, *roles, LOGITS))}
    order = sorted(ends, key=lambda label: (rank[ends[label][0]], "qkv".find(ends[label][1]), rank[ends[label][2]]))
    bare = {seed: found.drop_vars(_ENDS) for seed, found in each.items()}
    there = {seed: found.reindex(edge=order, fill_value={"component": ""}) for seed, found in bare.items()}
    names = {end: ("edge", [ends[label][i] for label in order]) for i, end in enumerate(_ENDS)}
    return along("seed", there).assign_coords(names)
