import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.memory_theory.capacity import amounts, growth, law_capacity


def table(rows, d=(4, 8, 16)):
    capacity = xr.DataArray(np.array(rows, dtype=float).T, dims=("d", "draw"), coords={"d": list(d)})
    return capacity.assign_coords(draw=range(len(rows))), xr.DataArray([x**2 for x in d], dims="d")


def test_slopes_of_known_laws():
    law = [law_capacity(d**2, share=0.5) for d in (4, 8, 16)]
    found = growth(*table([law, [4, 8, 16], [16, 64, 256]]))
    assert found.slope.sel(law="N log N", draw=0) == pytest.approx(1)
    assert found.intercept.sel(law="N log N", draw=0) == pytest.approx(np.log(0.5))
    assert found.slope.sel(law="N").values[1:] == pytest.approx([0.5, 1])


def test_law_capacity_solves_its_equation():
    n = law_capacity(1000, share=0.3)
    assert n * np.log(n) == pytest.approx(300)


def test_amounts_of_one_association():
    assert amounts(xr.DataArray([1.0], dims="d")).sel(law="N log N") == 0


def test_a_draw_that_stores_nothing_somewhere_has_no_slope():
    assert np.isnan(growth(*table([[0, 8, 16]])).slope).all()


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="at least two sizes"):
        growth(*table([[4]], d=(4,)))
    with pytest.raises(InputError, match="must be positive"):
        law_capacity(0)
