"""How many facts are learned by width: the sweep that is searched, and exponents of planted laws."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.factual_recall.analyses import WIDTHS, WITHOUT_MLP, capacity, exponents, scaling_sweep


@pytest.mark.parametrize(("mlp", "per_width"), [(True, 12), (False, 16)])
def test_parameters_are_counted_as_published(monkeypatch, tmp_path, mlp, per_width):
    def train(spec, path):
        return type("Run", (), {"last_step": 0 if spec.task.n_subjects <= spec.model.d_model / 2 else 2048})

    monkeypatch.setattr("mnemoscope.run.sweep.train", train)
    found = capacity(scaling_sweep([0, 1], mlp=mlp, widths=(8, 16, 32)), tmp_path)
    assert found.parameters.values.tolist() == [per_width * width**2 for width in (8, 16, 32)]
    assert dict(found.facts.sizes) == {"width": 3, "draw": 2}
    assert found.facts.sel(draw=0).values.tolist() == [4**2, 8**2, 14**2], "the largest of the scale up to d / 2"
    specs = scaling_sweep([0], mlp=mlp).specs()
    assert {(s.model.mlp, s.task.n_noise, s.recipe.stop_at) for s in specs} == {(mlp, 32, 0.99)}
    assert [s.model.d_model for s in specs] == list(WIDTHS if mlp else WITHOUT_MLP)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_exponents_are_those_that_were_planted(exponent):
    sizes = np.array([100, 400, 900, 5000])
    facts = np.stack([3 * sizes**exponent, sizes**exponent], 1)
    data = {"facts": (("width", "draw"), facts), "parameters": ("width", sizes)}
    found = exponents(xr.Dataset(data, coords={"width": [1, 2, 3, 4], "draw": [0, 1]}))
    assert found.values.tolist() == pytest.approx([exponent] * 2)


def test_where_a_width_learns_nothing_there_is_no_exponent():
    data = {"facts": (("width", "draw"), [[0], [9]]), "parameters": ("width", [10, 20])}
    found = xr.Dataset(data, coords={"width": [8, 11], "draw": [0]})
    assert exponents(found).isnull().all()
    with pytest.raises(InputError, match="at least two widths"):
        exponents(found.isel(width=[0]))
