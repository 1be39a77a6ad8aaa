"""Results over edges with heads called by their roles, so that seeds can be put together."""

import math
import re
from collections.abc import Mapping

import xarray as xr

from mnemoscope.analyses.roles import HEAD, called
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS


def edges_by_role(result: xr.Dataset, named: Mapping[str, str]) -> xr.Dataset:
    """A result over `edge` with the names of heads replaced.

    Args:
        result: With `writer`, `reader` and `through` along `edge`.
        named: Head (`L0H1`) to role (`analyses.roles`). Edges of heads that it does not name are left out.

    Returns:
        The result over edges by role, ordered by readers and writers: embeddings, heads in the order of `named`,
        MLPs, logits. `component` holds the edges as they were.

    Raises:
        InputError: The result has no edges, or two heads have the same role.
    """
    if "edge" not in result.dims:
        raise InputError(
            f"a result over edges has the dimension edge; got {', '.join(map(str, result.dims)) or 'none'}"
        )
    if len(set(named.values())) < len(named):
        raise InputError(f"every head needs a role of its own; got {', '.join(named.values())}")
    ends = {end: [str(name) for name in result[end].values] for end in ("writer", "reader")}
    rank = {name: place for place, name in enumerate(("input", *EMBEDDINGS, *named))}
    pairs = list(zip(ends["reader"], ends["writer"], strict=True))
    known = [i for i, pair in enumerate(pairs) if all(name in named or not HEAD.fullmatch(name) for name in pair)]

    def order(name: str) -> tuple[float, float]:
        numbers = re.findall(r"\d+", name)
        return rank.get(name, len(rank)), int(numbers[0]) if numbers else math.inf  # MLPs by layer, then the logits

    def place(i: int) -> tuple[object, ...]:
        reader, writer = pairs[i]
        return (order(reader), "qkv".find(str(result.through.values[i])), order(writer))

    result = result.isel(edge=sorted(known, key=place))
    labels = result.edge.values.tolist()
    names = {end: [called(str(name), named) for name in result[end].values] for end in ("writer", "reader")}
    return result.assign_coords(
        {
            "component": ("edge", labels),
            "edge": [called(label, named) for label in labels],
            **{end: ("edge", of_end) for end, of_end in names.items()},
        }
    )
