"""A circuit as a value: which edges of a model belong to it.

A circuit is an array of truth values along `edge`, whose labels are the edges' names; the coordinates `writer`,
`reader` and `through` say what they join. The *pruned* form leaves out what cannot matter. No edge matters from which
no path of edges in the circuit leads on to the logits. Where everything else carries the corrupted run, neither does
an edge that no path from the embeddings leads to: its writer reads the corrupted run only, and writes what it wrote
there. Where everything else carries means or zeros, such a writer makes something of them and its edges stay.

auto-circuit runs circuits as they are. EAP-IG prunes in both directions before it runs them, whatever the rest
carries, so that its circuits under means or zeros can differ from those that it was given.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.core.edge import LOGITS, Edge, coordinates
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import EMBEDDINGS, Site

_LAST = 1 << 30


def circuit(edges: Sequence[Edge], members: Iterable[str]) -> xr.DataArray:
    """The circuit of some edges, by name.

    Args:
        edges: All edges of the model.
        members: Names, as `str(edge)` says them: `L0H1 → L0 MLP`.

    Returns:
        Truth values over edge.

    Raises:
        InputError: The model has no edge of that name.
    """
    names, members = [str(edge) for edge in edges], set(members)
    if unknown := sorted(members.difference(names)):
        raise InputError(f"a circuit consists of edges of the model; it has no {unknown[0]!r}; it has {_some(names)}")
    return labelled(edges, np.array([name in members for name in names]))


def labelled(edges: Sequence[Edge], masks: Bool[np.ndarray, "*circuits edge"], *dims: str) -> xr.DataArray:
    """Circuits with the names of their edges; `dims` name the axes before."""
    return xr.DataArray(masks, dims=(*dims, "edge"), coords=coordinates(edges), name="circuit")


def along(edges: Iterable[Edge | str], values: xr.DataArray) -> xr.DataArray:
    """Values along `edge` in the order of a model's edges, `edge` last.

    Raises:
        InputError: They are not one an edge of the model.
    """
    names = [str(edge) for edge in edges]
    given = [str(name) for name in values["edge"].values] if "edge" in values.coords else []
    if sorted(given) != sorted(names):
        odd = sorted(set(given) ^ set(names))
        raise InputError(
            f"a circuit or scores have one value for each of the {len(names)} edges of the model, labelled along edge; "
            f"got {len(given)}, which differ in {_some(odd) or 'how often they occur'}; label them by setting.edges"
        )
    return values.sel(edge=names).transpose(..., "edge")


def members(edges: Sequence[Edge], circuits: xr.DataArray) -> Bool[np.ndarray, "*circuits edge"]:
    """Circuits as truth values in the order of a model's edges.

    Raises:
        InputError: They are not truth values, one an edge of the model.
    """
    masks = along(edges, circuits).to_numpy()
    if masks.dtype != bool:
        raise InputError(
            f"a circuit holds truth values; got {masks.dtype}; compare scores with a threshold, or `top_n`"
        )
    return masks


def nodes(circuit: xr.DataArray) -> list[str]:
    """The parts that a circuit's edges join, in the order of writing, the logits last."""
    inside = circuit.values
    joined = {str(name) for end in ("writer", "reader") for name in circuit[end].values[inside]}
    known = [str(name) for name in circuit["writer"].values]
    return sorted(joined, key=lambda name: known.index(name) if name in known else len(known))


def pruned(
    edges: Sequence[Edge], masks: Bool[np.ndarray, "*circuits edge"], *, from_embeddings: bool
) -> Bool[np.ndarray, "*circuits edge"]:
    """The edges of circuits that lie on paths to the logits.

    Args:
        edges: All edges of the model.
        masks: Circuits.
        from_embeddings: Whether the paths have to start at the embeddings too.
    """
    kept = masks.copy()
    if from_embeddings:
        reached: dict[Site | str, np.ndarray] = {}
        for number in sorted(range(len(edges)), key=lambda number: _depth(edges[number].writer)):
            edge = edges[number]
            if _depth(edge.writer) >= 0:
                kept[..., number] &= reached.get(edge.writer, False)
            reached[edge.reader] = kept[..., number] | reached.get(edge.reader, False)
    needed: dict[Site | str, np.ndarray] = {}
    for number in sorted(range(len(edges)), key=lambda number: -_depth(edges[number].reader)):
        edge = edges[number]
        if edge.reader != LOGITS:
            kept[..., number] &= needed.get(edge.reader, False)
        needed[edge.writer] = kept[..., number] | needed.get(edge.writer, False)
    return kept


def _depth(part: Site | str) -> int:
    """Parts in the order of writing."""
    if not isinstance(part, Site):
        return _LAST
    if part.kind in EMBEDDINGS or part.kind == "resid_pre" or part.layer is None:
        return -1
    return 2 * part.layer + (part.kind == "mlp_out")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
