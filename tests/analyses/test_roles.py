import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.roles import by_role, choose_roles, with_roles
from mnemoscope.core.errors import InputError
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
BY_HEAD = xr.DataArray(
    np.arange(12.0).reshape(2, 3, 2),
    dims=("layer", "query", "head"),
    coords={"layer": [0, 1], "query": ["x1", "y1", "x2"], "head": [0, 1]},
    name="share",
    attrs={"unit": "share of attention"},
)
BY_COMPONENT = xr.DataArray(
    [1.0, 2.0, 3.0, 4.0], dims="component", coords={"component": ["embed", "L0H0", "L0H1", "L0 MLP"]}, name="cost"
)


def test_views_are_told_what_heads_are_called():
    patterns = xr.Dataset({"pattern": (("layer", "head", "query", "key"), np.zeros((2, 1, 3, 3)))})
    named = with_roles(patterns, {"L1H0": "copy head", "L0 MLP": "MLP"})
    assert named.called.values.tolist() == [["L0H0"], ["copy head (L1H0)"]]


def test_heads_by_layer_and_number():
    result = by_role(BY_HEAD, {"L1H0": "recall head", "L0H1": "other head", "L0 MLP": "L0 MLP"})
    assert result.role.values.tolist() == ["recall head", "other head"]  # the rest is left out
    assert result.component.values.tolist() == ["L1H0", "L0H1"]
    for role, layer, head in (("recall head", 1, 0), ("other head", 0, 1)):
        assert (result.sel(role=role) == BY_HEAD.sel(layer=layer, head=head)).all()
    assert set(result.dims) == {"role", "query"}
    assert (result.name, result.attrs) == ("share", BY_HEAD.attrs)


def test_components_keep_their_name_where_they_have_no_role():
    result = by_role(BY_COMPONENT, {"L0H1": "elimination head", "L0H0": "other head"})
    assert dict(zip(result.role.values.tolist(), result.values.tolist(), strict=True)) == {
        "elimination head": 3,
        "other head": 2,
        "embed": 1,
        "L0 MLP": 4,
    }
    assert by_role(BY_COMPONENT, {"L0 MLP": "memory"}).role.values.tolist() == ["memory", "embed"]


def test_both_parts_of_a_pair_are_rearranged():
    names = BY_COMPONENT.component.values
    pairs = (BY_COMPONENT + 10 * BY_COMPONENT.rename(component="other")).rename("interaction")
    result = by_role(
        xr.Dataset({"cost": BY_COMPONENT, "interaction": pairs}), {"L0H1": "one head", "L0H0": "other head"}
    )
    roles = ["one head", "other head", "embed", "L0 MLP"]
    assert result.role.values.tolist() == result.other.values.tolist() == roles
    for role, name in zip(roles, ["L0H1", "L0H0", "embed", "L0 MLP"], strict=True):
        for other, second in zip(roles, ["L0H1", "L0H0", "embed", "L0 MLP"], strict=True):
            assert result.interaction.sel(role=role, other=other) == pairs.sel(component=name, other=second)
    assert pairs.other.values.tolist() == names.tolist()


def test_dimensions_without_coordinates_count_from_zero():
    bare = BY_HEAD.drop_vars(["layer", "head"])
    found = by_role(bare, {"L1H0": "recall head"}).sel(role="recall head")
    assert found.values.tolist() == BY_HEAD.sel(layer=1, head=0).values.tolist()


def test_a_dataset_keeps_what_has_no_heads():
    dataset = xr.Dataset({"share": BY_HEAD, "clean": ("skill", [1.0, 0.5]), "mlp": ("layer", [7, 8])}, attrs={"n": 5})
    result = by_role(dataset, {"L0H0": "elimination head"})
    assert (result.share.sel(role="elimination head") == BY_HEAD.sel(layer=0, head=0)).all()
    assert (result.clean.values.tolist(), result.mlp.values.tolist(), result.attrs) == ([1, 0.5], [7, 8], {"n": 5})
    assert result.mlp.layer.values.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("result", "named", "message"),
    [
        (BY_HEAD, {"L2H0": "recall head"}, "L2H0; the result has L0H0, L0H1, L1H0, L1H1"),
        (BY_HEAD, {"L0H0": "a", "L0H1": "a"}, "a role of its own; got a, a"),
        (BY_COMPONENT, {"L0H0": "embed"}, "a role of its own"),
        (BY_HEAD.isel(head=0, drop=True), {"L0H0": "a"}, "needs dimensions"),
        (BY_HEAD.rename(query="role"), {"L0H0": "a"}, "dimension role already"),
        (xr.Dataset({"a": BY_HEAD, "b": BY_COMPONENT}), {"L0H0": "a"}, "both kinds"),
    ],
)
def test_what_is_refused(result, named, message):
    with pytest.raises(InputError, match=message):
        by_role(result, named)


def turned(model):
    """The same function with the heads of every layer in reverse order."""
    with torch.no_grad():
        for block in model.blocks:
            for name, value in block.attn.named_parameters():
                if name != "b_O":
                    value.copy_(value.flip(0))
    return model


def norms(model, batch):
    """A measure of every head: the size of its output."""
    _, cache = model.run_with_cache(batch.inputs)
    size = torch.stack([cache[f"blocks.{n}.attn.hook_z"].norm(dim=-1).mean((0, 1)) for n in range(model.cfg.n_layers)])
    return xr.DataArray(size.detach().numpy(), dims=("layer", "head"), name="size")


def test_models_with_exchanged_heads_give_the_same_by_role_and_not_by_head():
    fields = {"n_heads": 4, "n_layers": 2}
    selection = TASK.monitor(60, split="test", generator=seeded(0))
    batch = TASK.monitor(30, split="test", generator=seeded(1))
    by_head, found = [], []
    for model in (random_model(**fields), turned(random_model(**fields))):
        named = choose_roles(model, selection, skills=TASK.skills(selection), reference=selection)
        by_head.append(norms(model, batch))
        found.append(by_role(by_head[-1], named))
    assert not np.allclose(by_head[0], by_head[1])
    xr.testing.assert_allclose(found[0].drop_vars("component"), found[1].drop_vars("component"), rtol=1e-5)
    assert not found[0].component.equals(found[1].component)
