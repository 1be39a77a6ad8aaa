"""Results over edges with heads called by their roles, of one model or over seeds.

In a model of one layer edges by role are the same in every seed. In a deeper one an edge from one role to another is
there only in seeds where the first lies below the second. A result over seeds has all edges that some seed has, and NaN
where a seed does not have one: a mean over seeds is one over the seeds that have the edge.
"""

import math
import re
from collections.abc import Mapping

import xarray as xr

from mnemoscope.analyses import rename_heads
from mnemoscope.analyses.roles import HEAD
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS, LOGITS

_ENDS = ("reader", "through", "writer")


def edges_by_role(result: xr.Dataset, named: Mapping[str, str]) -> xr.Dataset:
    """A result over `edge` with the names of heads replaced; `component` holds the edges as they were.

    `named` maps heads (`L0H1`) to roles (`analyses.roles`); edges of heads that it does not name are left out. Edges by
    role are ordered by readers and writers: embeddings, heads in the order of `named`, MLPs, logits. Raises InputError
    where the result has no edges, or two heads have the same role.

    >>> values = ms.analyses.effects(ms.patch_edges(model, pairs))
    >>> named = ms.analyses.edges_by_role(values, {"L0H0": "elimination head", "L0H1": "other head"})
    >>> print(named.edge.values[0])
    input → elimination head q
    """
    if "edge" not in result.dims:
        raise InputError(
            f"a result over edges has the dimension edge; got {', '.join(map(str, result.dims)) or 'none'}"
        )
    if len(set(named.values())) < len(named):
        raise InputError(f"every head needs a role of its own; got {', '.join(named.values())}")
    ends = {end: [str(name) for name in result[end].values] for end in ("writer", "reader")}
    places = list(zip(ends["reader"], map(str, result.through.values), ends["writer"], strict=True))
    known = [i for i, place in enumerate(places) if all(end in named or not HEAD.fullmatch(end) for end in place)]
    result = result.isel(edge=sorted(known, key=lambda i: _order(places[i], list(named))))
    labels = result.edge.values.tolist()
    names = {end: [rename_heads(str(name), named) for name in result[end].values] for end in ("writer", "reader")}
    return result.assign_coords(
        {
            "component": ("edge", labels),
            "edge": [rename_heads(label, named) for label in labels],
            **{end: ("edge", of_end) for end, of_end in names.items()},
        }
    )


def _order(place: tuple[str, ...], names: list[str]) -> tuple[object, ...]:
    """Sorts edges by reader, input and writer: embeddings, parts in the order of the names, other MLPs, logits.

    The error of a dictionary comes before its features.
    """
    rank = {name: number for number, name in enumerate(("input", *EMBEDDINGS, *names))}

    def of(name: str) -> tuple[float, ...]:
        return rank.get(name, len(rank)), *(map(int, re.findall(r"\d+", name)) if name != LOGITS else [math.inf])

    reader, through, writer = place
    return of(reader), "qkv".find(through), of(writer)


def edges_of_seeds(result: xr.Dataset, component: xr.DataArray) -> xr.Dataset:
    """A result over seeds and edges with heads called by their roles.

    `result` has `writer`, `reader` and `through` along `edge`; `component` is over (seed, role) and has every head and
    MLP (`L0H1`) of the model. The result is as from `edges_by_role`, along `seed`: NaN, and an empty `component`, where
    a seed lacks the edge. Raises InputError where the result has no seeds or no edges, or roles are missing.
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
    order = sorted(ends, key=lambda label: _order(ends[label], roles))
    bare = {seed: found.drop_vars(_ENDS) for seed, found in each.items()}
    there = {seed: found.reindex(edge=order, fill_value={"component": ""}) for seed, found in bare.items()}
    names = {end: ("edge", [ends[label][i] for label in order]) for i, end in enumerate(_ENDS)}
    return concatenate("seed", there).assign_coords(names)
