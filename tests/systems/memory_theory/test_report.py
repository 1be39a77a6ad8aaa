"""What `reproduce` shows of capacities, from tables whose exponents are known."""

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.systems.memory_theory.capacity import law_capacity
from mnemoscope.systems.memory_theory.claim_parts import capacities, effects
from mnemoscope.systems.memory_theory.report import capacities_in, fitted_band, tables

SHARES = (0.5, 1.0, 2.0)
"""Of three draws: N ln N by the parameters."""


@pytest.fixture(name="results")
def made_up_results():
    draws = [effects(capacities({d: law_capacity(d**2, share=share) for d in (8, 16, 32)})) for share in SHARES]
    data = {name: ("draw", [draw[name] for draw in draws]) for name in draws[0]}
    return {"M4": xr.Dataset(data, coords={"draw": [0, 1, 2]})}


def test_capacities_come_back_from_the_evidence(results):
    found = capacities_in(results)
    assert list(found) == ["trained matrix"]
    each = found["trained matrix"]
    assert each.d.values.tolist() == [8, 16, 32]
    assert each.parameters.values.tolist() == [64, 256, 1024]
    assert each.capacity.sel(d=16, draw=2) == pytest.approx(law_capacity(512))


def test_tables_show_the_exponent_beside_the_published_one(results):
    exponents, sizes = tables(results)
    memory, d, published, law, *_, amount, _ = exponents.rows[0]
    assert (memory, d, published) == ("trained matrix", "8 to 32", "1")
    assert law == "1.000 [1.000, 1.000]"
    assert amount == "1.167 [0.500, 2.000]"
    assert [row[:2] for row in sizes.rows] == [["8", "64"], ["16", "256"], ["32", "1024"]]


def test_the_fitted_line_is_the_mean_of_the_logarithms(results):
    """The shares 1/2, 1, 2 have the mean 1 on a logarithmic scale."""
    band = fitted_band(capacities_in(results)["trained matrix"])
    assert band.sel(summary="mean").values == pytest.approx([64, 256, 1024])
    half = 4.3027 * np.log(2) / 3**0.5  # Student's t with two degrees of freedom
    assert np.log(band.sel(summary="high") / band.sel(summary="mean")).values == pytest.approx([half] * 3, rel=1e-4)


def test_the_page_shows_it(results):
    entry = ms.report.DRAW_REPORTS.get("memory-theory")
    page = ms.report.Page(entry.title)
    entry.page(page, results)
    text = page.html()
    assert "Capacity against parameters" in text
    assert "1.000 [1.000, 1.000]" in text
