"""Every result that a test here gets of an analysis has coordinates: a selection of an axis would be counted from 0."""

import inspect
from collections.abc import Mapping
from functools import wraps

import pytest
import xarray as xr

NUMBERED = {"layer", "head", "pos", "query", "key", "neuron", "example"}
"""Axes whose labels are numbers, so that a missing one passes for its place."""


def unlabelled(result) -> set[str]:
    """The axes of results, of which there may be several, that lack their coordinate."""
    if isinstance(result, xr.Dataset | xr.DataArray):
        return {str(axis) for axis in result.dims if axis in NUMBERED and axis not in result.coords}
    parts = result.values() if isinstance(result, Mapping) else result if isinstance(result, list | tuple) else ()
    return set().union(*map(unlabelled, parts))


def checked(analysis):
    """The analysis, which fails where an axis of its result has no labels though its arguments have them."""

    @wraps(analysis)
    def measured(*args, **kwargs):
        result = analysis(*args, **kwargs)
        missing = unlabelled(result) - unlabelled([*args, *kwargs.values()])
        assert not missing, f"{analysis.__qualname__} gives axes without coordinates: {sorted(missing)}"
        return result

    return measured


@pytest.fixture(scope="module", autouse=True)
def _labelled_axes(request):
    """The analyses that a module of tests has imported are checked whenever one of its tests calls them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in list(vars(request.module).items()):
            if inspect.isfunction(value) and value.__module__.startswith("mnemoscope.analyses"):
                patch.setattr(request.module, name, checked(value))
        yield
