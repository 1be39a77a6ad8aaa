"""Patterns of costs by hand."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.ablation.dissociation_margins import dissociation_margins
from mnemoscope.core.errors import InputError


def costs(a, b):
    return xr.DataArray(np.array([a, b], dtype=float), dims=("component", "skill"), coords={"skill": ["s", "t"]})


def joint(s, t):
    return xr.DataArray([float(s), float(t)], dims="skill", coords={"skill": ["s", "t"]})


@pytest.mark.parametrize(
    ("a", "b", "both", "holds", "size"),
    [
        ((0.8, 0.0), (0.1, 0.9), (0.8, 0.9), "double", 0.15),  # min(.55, .25, .65, .15)
        ((0.1, 0.9), (0.8, 0.0), (0.8, 0.9), "double", 0.15),
        ((0.8, 0.7), (0.0, 0.9), (0.8, 0.9), "single", 0.25),  # min(.55, .45, .65, .25)
        ((0.8, 0.7), (0.9, 0.1), (0.8, 0.9), "single", 0.15),
        ((0.0, 0.9), (0.8, 0.7), (0.8, 0.9), "single", 0.25),
        ((0.8, 0.7), (0.4, 0.9), (0.8, 0.9), "both", 0.15),
        ((0.1, 0.0), (0.0, 0.2), (0.8, 0.5), "redundant", 0.05),
        ((0.1, 0.0), (0.0, 0.2), (0.8, 0.2), None, 0.0),
        ((0.8, 0.0), (0.8, 0.0), (0.8, 0.0), None, 0.0),
    ],
)
def test_by_hand(a, b, both, holds, size):
    found = dissociation_margins(costs(a, b), joint(*both))
    assert [name for name, value in found.items() if value > 0] == ([holds] if holds else [])
    if holds:
        assert found[holds] == pytest.approx(size)


def test_skills_are_matched_by_name():
    swapped = joint(0.5, 0.8)[::-1]
    found = dissociation_margins(costs((0.0, 0.0), (0.0, 0.0)), swapped)
    assert found == dissociation_margins(costs((0.0, 0.0), (0.0, 0.0)), joint(0.5, 0.8))


def test_at_most_one_pattern_holds():
    values = np.random.default_rng(0).uniform(0, 1, (500, 6))
    for *four, s, t in values:
        found = dissociation_margins(costs(four[:2], four[2:]), joint(s, t), margin=0.4)
        assert sum(value > 0 for value in found.values()) <= 1


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="two components and two skills"):
        dissociation_margins(costs((0, 0), (0, 0))[:1], joint(0, 0))
    with pytest.raises(InputError, match="margin must be from 0 to 1"):
        dissociation_margins(costs((0, 0), (0, 0)), joint(0, 0), margin=2)
