"""Paths of circuits along training, seed by seed."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.retrieval.analyses import first_true_step, surviving

STEPS = [0, 10, 20, 30]


@pytest.fixture
def followed():
    rows = {"0→2": [[0, 0.2, 0.6, 0.9], [0, 0.5, 0.4, 0.9]], "2→1": [[0, 0, 0, 0.4], [0.1, 0.6, 0.7, 0.8]]}
    data = {name: (("seed", "step"), values) for name, values in rows.items()}
    return xr.Dataset(data, coords={"seed": [3, 4], "step": STEPS})


def circuits(*found):
    """Rises over (seed, layer, head, place, to) where a path is in a circuit: (seed, layer, place, to)."""
    coords = {"seed": [3, 4], "layer": [0, 1], "head": [0], "place": range(3), "to": range(3)}
    rise = xr.DataArray(np.full((2, 2, 1, 3, 3), np.nan), dims=tuple(coords), coords=coords)
    for seed, layer, place, to in found:
        rise.loc[{"seed": seed, "layer": layer, "head": 0, "place": place, "to": to}] = 0.3
    return rise


def test_a_path_counts_in_the_seeds_whose_circuit_has_it_in_any_layer(followed):
    found = surviving(followed, circuits((3, 0, 0, 2), (4, 1, 0, 2), (4, 0, 2, 1)))
    assert found.path.values.tolist() == ["0→2", "2→1"]
    assert (found.place.values.tolist(), found.to.values.tolist()) == ([0, 2], [2, 1])
    assert found.sel(path="0→2", seed=3).values.tolist() == [0, 0.2, 0.6, 0.9]
    assert found.sel(path="2→1").isnull().all("step").values.tolist() == [True, False]


def test_the_first_step_at_the_level_counts_whatever_follows(followed):
    onsets = first_true_step(surviving(followed, circuits((3, 0, 0, 2), (4, 1, 0, 2), (3, 0, 2, 1))) >= 0.5)
    assert onsets.sel(path="0→2").values.tolist() == [20, 10]
    assert np.isnan(onsets.sel(path="2→1")).all(), "below one half, and in no circuit"


def test_circuits_without_paths_and_trajectories_of_other_tasks(followed):
    assert surviving(followed, circuits()).sizes["path"] == 0
    with pytest.raises(InputError, match="no attention along 1→2"):
        surviving(followed, circuits((3, 0, 1, 2)))
