"""Edges by role: two models whose heads are exchanged give the same result."""

from copy import deepcopy

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.edge_roles import edges_by_role
from mnemoscope.analyses.patching import patch_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Edge, Site, edge_coordinates
from tests.split_hooks import random_pairs
from tests.support import foreign_model


def exchanged(model):
    """A copy with the heads of every layer in reverse order."""
    model = deepcopy(model)
    for block in model.blocks:
        for kind in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            weight = getattr(block.attn, kind)
            weight.data = weight.data.flip(0)
    return model


@pytest.mark.parametrize("embeddings", ["together", "apart"])
def test_the_number_of_a_head_does_not_matter(embeddings):
    model = foreign_model(n_layers=1, normalization_type="LN")
    pairs, options = random_pairs(n=3), {"embeddings": embeddings}
    one = edges_by_role(patch_edges(model, pairs, **options), {"L0H0": "first", "L0H1": "second"})
    other = edges_by_role(patch_edges(exchanged(model), pairs, **options), {"L0H1": "first", "L0H0": "second"})
    assert one.edge.values.tolist() == other.edge.values.tolist()
    assert np.allclose(one.value, other.value, atol=1e-5)
    assert other.sel(edge="first → logits").component == "L0H1 → logits"
    assert one.sel(edge="second → L0 MLP").writer == "second"
    assert one.sizes["edge"] == len(set(one.edge.values))


def test_heads_without_a_role_are_left_out():
    result = patch_edges(foreign_model(), random_pairs(n=2))
    found = edges_by_role(result, {"L1H0": "reader", "L0H1": "writer"})
    assert "writer → reader k" in found.edge.values
    assert not any("H" in name for name in found.edge.values)


def test_is_refused_without_edges_or_with_a_role_twice():
    result = patch_edges(foreign_model(), random_pairs(n=2))
    with pytest.raises(InputError, match="has the dimension edge; got direction"):
        edges_by_role(result.isel(edge=0), {})
    with pytest.raises(InputError, match="every head needs a role of its own"):
        edges_by_role(result, {"L0H0": "a", "L0H1": "a"})


def test_mlps_are_in_the_order_of_their_layers():
    chosen = [Edge(writer=Site(kind="mlp_out", layer=layer)) for layer in (10, 2)]
    into = [Edge(writer=Site(kind="resid_pre", layer=0), reader=edge.writer) for edge in chosen]
    result = xr.Dataset(coords=edge_coordinates(chosen + into))
    expected = ["input → L2 MLP", "input → L10 MLP", "L2 MLP → logits", "L10 MLP → logits"]
    assert edges_by_role(result, {}).edge.values.tolist() == expected
