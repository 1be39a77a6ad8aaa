"""Names of positions, in arrays, tables, figures, attention views and options alike.

A guest may register what its task calls positions, such as `x1`, `y1`, … (`POSITION_NAMES`). Arrays number positions
from 0, as TransformerLens does, and carry the names beside the numbers: `pos_name` along `pos`, `query_name` along
`query`, and so on for every axis of positions. For prompts made of texts they carry the token there (`pos_token`)
instead. What is shown is the name, else the number and the token, else the number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.guests import Registry

WORDS: Mapping[str, str] = {
    "pos": "pos",
    "query": "query",
    "key": "key",
    "query_pos": "query",
    "key_pos": "key",
    "source_pos": "source",
    "input_pos": "pos",
}
"""Axes of positions, and what stands before a position in the name of a row or a cell."""
TITLES: Mapping[str, str] = {
    "pos": "position",
    **{word: f"{word} position" for word in ("query", "key", "source")},
}
"""The title of an axis, by its word."""
Result = TypeVar("Result", xr.Dataset, xr.DataArray)


POSITION_NAMES: Registry[Callable[[Any], Sequence[str]]] = Registry("position names", "tasks")
"""The function that names each of the `n_ctx` positions of a task, in their order, by the task's name. No name is a
number or the name of a latent.
"""


def position_names(task: object) -> tuple[str, ...]:
    """The task's names for its positions; empty if it has none."""
    name = getattr(task, "name", None)
    return tuple(POSITION_NAMES.get(name)(task)) if name in POSITION_NAMES.names(of=()) else ()


def labels(positions: Sequence[str], **axes: Sequence[Any]) -> dict[str, tuple[str, list[str]]]:
    """Coordinates with the names of positions (`axes`: those along each dimension of numbers); none without names."""
    return {f"{axis}_name": (axis, [positions[int(pos)] for pos in along]) for axis, along in axes.items() if positions}


def add_position_names(result: Result, positions: Sequence[str]) -> Result:
    """A result with the names of positions along those axes that have none yet; other axes are left alone."""
    axes = {
        axis: result.coords[axis].values.tolist()
        for axis in WORDS
        if axis in result.dims
        and f"{axis}_name" not in result.coords
        and _is_position_axis(result, axis, len(positions))
    }
    return result.assign_coords(labels(positions, **axes))


def _is_position_axis(result: xr.Dataset | xr.DataArray, axis: str, n_pos: int) -> bool:
    """True if the coordinate of an axis numbers some of so many positions."""
    if axis not in result.coords:
        return False
    values = result.coords[axis].values
    return np.issubdtype(values.dtype, np.integer) and set(values) <= set(range(n_pos))


def axis_labels(result: xr.Dataset | xr.DataArray, axis: str) -> list[str]:
    """The labels along an axis, as they are shown; positions by their names."""
    labels = [str(label) for label in result[axis].values.tolist()]
    if axis not in WORDS:
        return labels
    if f"{axis}_name" in result.coords:
        return [str(name) for name in result[f"{axis}_name"].values.tolist()]
    if f"{axis}_token" in result.coords:
        tokens = result[f"{axis}_token"].values.tolist()
        return [f"{label} {token.strip()}".strip() for label, token in zip(labels, tokens, strict=True)]
    return labels


def axis_word(axis: str) -> str:
    """The word before a label of an axis in the name of a row or a cell."""
    return WORDS.get(axis, axis)


def axis_title(axis: str) -> str:
    """The title of an axis of a figure."""
    return TITLES.get(axis_word(axis), axis.replace("_", " "))


def find_position(text: str | int, positions: Sequence[str], n_pos: int, *, argument: str) -> int:
    """The position, from 0, of a name or a number (below 0: from the end); a refusal names `argument`."""
    if text in positions[:n_pos]:
        return positions.index(text)
    try:
        found = int(text)
    except ValueError:
        names = f", or one of {', '.join(positions[:n_pos])}" if positions else ", since positions have no names here"
        raise InputError(f"{argument} must be a number from {-n_pos} to {n_pos - 1}{names}; got {text!r}") from None
    in_range(argument, found, -n_pos, n_pos - 1)
    return found % n_pos
