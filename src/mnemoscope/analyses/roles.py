"""Results over heads rearranged to roles, so that seeds can be put together.

The number of a head means nothing across seeds: a head of one seed is compared with the head of another that has the
same role, never with the one that has the same number. Roles are chosen elsewhere (`choose_roles`), once
per model or once per run, and on prompts that the result is not read from.

It gives names only. A head that got a role because some head has to get it is rearranged like any other.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import xarray as xr

from mnemoscope.core.errors import InputError

Result = TypeVar("Result", xr.Dataset, xr.DataArray)

HEAD = re.compile(r"L\d+H\d+")
"""The name of a head."""


def by_role(result: Result, named: Mapping[str, str]) -> Result:
    """A result over (layer, head), or over `component`, rearranged to roles.

    Dimensions `layer` and `head` become `role`, in the order of `named`; so does `component`. The second component of a
    pair, `other`, is rearranged likewise under its own name. Variables of a dataset that have neither stay as they are.
    The components remain as coordinate `component`.

    `named` maps components (`L0H1`) to roles. Heads that it does not name are left out; other components keep their own
    name, after the named ones, unless it gives them another.

    Raises InputError where the result has no heads or components, or both; a head does not exist; or two components of
    the result have the same role.
    """
    arrays = result.data_vars.values() if isinstance(result, xr.Dataset) else [result]
    kinds = {_kind(array) for array in arrays} - {""}
    if len(kinds) != 1:
        found = "variables of both kinds; rearrange them one at a time" if kinds else f"dimensions {tuple(result.dims)}"
        raise InputError(f"a result by role needs dimensions (layer, head) or component; got {found}")
    if "role" in result.dims:
        raise InputError("the result has a dimension role already")
    if isinstance(result, xr.DataArray):
        return _array_by_role(result, named)
    variables = {
        name: _array_by_role(array, named) if _kind(array) else array for name, array in result.data_vars.items()
    }
    return xr.Dataset(variables, attrs=result.attrs)


def called(text: str, named: Mapping[str, str]) -> str:
    """A text in which heads are called by their roles."""
    return HEAD.sub(lambda head: named[head[0]], text)


def named_in(result: xr.Dataset) -> dict[str, str]:
    """The component-to-role mapping of a result by role, to bring other results of the same model into its order."""
    return dict(zip(result.component.values.tolist(), result.role.values.tolist(), strict=True))


def with_roles(patterns: xr.Dataset, named: Mapping[str, str]) -> xr.Dataset:
    """Attention patterns with the names of their heads, for a view.

    `patterns` has `pattern` over (..., layer, head, query, key); `named` maps components (`L0H1`) to roles. The result
    has `called` over (layer, head) too: the role and behind it the head, `copy head (L0H1)`; or the head.
    """
    pattern = patterns.pattern
    heads = [[f"L{layer}H{head}" for head in pattern["head"].values] for layer in pattern["layer"].values]
    names = [[f"{named[head]} ({head})" if head in named else head for head in layer] for layer in heads]
    return patterns.assign(called=(("layer", "head"), names))


def _kind(array: xr.DataArray) -> str:
    if "component" in array.dims:
        return "component"
    return "head" if {"layer", "head"} <= set(array.dims) else ""


def _array_by_role(array: xr.DataArray, named: Mapping[str, str]) -> xr.DataArray:
    if _kind(array) == "head":
        array = array.stack(component=("layer", "head"))
        names = [f"L{layer}H{head}" for layer, head in array.component.values]
        array = array.drop_vars(["component", "layer", "head"]).assign_coords(component=names)
    present = [str(name) for name in array.component.values]
    missing = [name for name in named if HEAD.fullmatch(name) and name not in present]
    if missing:
        raise InputError(f"roles are given to {', '.join(missing)}; the result has {', '.join(present)}")
    chosen = [name for name in named if name in present]
    chosen += [name for name in present if name not in named and not HEAD.fullmatch(name)]
    roles = [named.get(name, name) for name in chosen]
    if len(set(roles)) < len(roles):
        raise InputError(f"every component needs a role of its own; got {', '.join(roles)}")
    if "other" in array.dims:
        array = array.sel(other=chosen).assign_coords(other=roles)
    return array.sel(component=chosen).assign_coords(role=("component", roles)).swap_dims(component="role")
