"""Edges of several seeds by role, where heads of a role lie in one layer or in several."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.edge_roles import edges_by_role, edges_of_seeds
from mnemoscope.analyses.patching import patch_edges
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.core.errors import InputError
from tests.split_hooks import random_pairs
from tests.support import foreign_model, reads_back

ROLES = ["first", "second", "third", "fourth"]
BELOW, ABOVE = ["L0H1", "L1H0", "L0H0", "L1H1"], ["L1H0", "L0H0", "L0H1", "L1H1"]


def of_two_seeds(*heads):
    """A sweep over one model, twice, and who has the roles in either seed."""
    result = patch_edges(foreign_model(attn_only=True), random_pairs(n=2))
    component = xr.DataArray(list(heads), dims=("seed", "role"), coords={"seed": [0, 1], "role": ROLES})
    return result, edges_of_seeds(concatenate("seed", {0: result, 1: result}), component)


def test_seeds_with_the_same_layout_have_the_same_edges():
    result, found = of_two_seeds(BELOW, ["L0H0", "L1H1", "L0H1", "L1H0"])
    assert found.sizes["edge"] == result.sizes["edge"]
    assert not found.value.isnull().any()
    alone = edges_by_role(result, dict(zip(BELOW, ROLES, strict=True)))
    np.testing.assert_array_equal(found.value.sel(seed=0, edge=alone.edge), alone.value)


def test_an_edge_is_missing_in_the_seeds_that_do_not_have_it(tmp_path):
    result, found = of_two_seeds(BELOW, ABOVE)
    for seed, heads in enumerate((BELOW, ABOVE)):
        alone = edges_by_role(result, dict(zip(heads, ROLES, strict=True)))
        of_seed = found.sel(seed=seed)
        np.testing.assert_array_equal(of_seed.value.sel(edge=alone.edge), alone.value)
        assert of_seed.component.sel(edge=alone.edge).values.tolist() == alone.component.values.tolist()
        missing = of_seed.value.isnull().all(["direction", "metric", "prompt"])
        assert set(of_seed.edge.values[missing]) == set(found.edge.values) - set(alone.edge.values)
        assert (of_seed.component == "").equals(missing)
    assert found.clean.notnull().all()
    assert reads_back(found, tmp_path / "edges.nc")


def test_edges_are_in_the_order_of_readers_then_inputs_then_writers():
    found = of_two_seeds(BELOW, ABOVE)[1]
    parts = ["input", *ROLES, "logits"]
    places = [
        (parts.index(reader), "qkv".find(through), parts.index(writer))
        for reader, through, writer in zip(
            *(found[end].values.tolist() for end in ("reader", "through", "writer")), strict=True
        )
    ]
    assert places == sorted(places)
    assert found.edge.values[0] == f"{found.writer.values[0]} → {found.reader.values[0]} q"


def test_one_seed_or_no_edges_are_refused():
    result, found = of_two_seeds(BELOW, ABOVE)
    component = xr.DataArray([BELOW], dims=("seed", "role"), coords={"seed": [0], "role": ROLES})
    for wrong in (result, found.isel(edge=0)):
        with pytest.raises(InputError, match="has the dimensions edge and seed"):
            edges_of_seeds(wrong, component)
