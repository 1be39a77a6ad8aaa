"""What `reproduce` shows of F1, from facts whose exponents are known."""

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.systems.factual_recall.analyses import WIDTHS, n_parameters, scaling_sweep
from mnemoscope.systems.factual_recall.claims.growth import effects
from mnemoscope.systems.factual_recall.scaling_report import facts_in, fitted_lines, tables

SHARES = (1 / 40, 1 / 20, 1 / 10)
"""Of three draws: facts by parameters."""


@pytest.fixture(name="results")
def made_up_results():
    parameters = n_parameters(scaling_sweep([0], mlp=True, widths=WIDTHS))
    draws = []
    for share in SHARES:
        facts = (share * parameters).expand_dims(draw=[0], axis=1)
        draws.append(effects(xr.Dataset({"facts": facts, "parameters": parameters})))
    data = {name: ("draw", [draw[name] for draw in draws]) for name in draws[0]}
    return {"F1": xr.Dataset(data, coords={"draw": [0, 1, 2]})}


def test_facts_come_back_from_the_evidence(results):
    found = facts_in(results)
    assert list(found) == ["attention and MLP"]
    each = found["attention and MLP"]
    assert each.width.values.tolist() == list(WIDTHS)
    assert int(each.parameters.sel(width=16)) == 12 * 16**2
    assert float(each.facts.sel(width=16, draw=1)) == pytest.approx(12 * 16**2 / 20)


def test_the_fitted_line_is_the_mean_of_the_logarithms(results):
    """The shares 1/40, 1/20, 1/10 have the mean 1/20 on a logarithmic scale."""
    found = facts_in(results)["attention and MLP"]
    assert fitted_lines(found).sel(summary="mean").values == pytest.approx(found.parameters.values / 20)
    half = 4.3027 * np.log(2) / 3**0.5  # Student's t with two degrees of freedom
    up = np.log(fitted_lines(found).sel(summary="high") / fitted_lines(found).sel(summary="mean"))
    assert up.values == pytest.approx([half] * len(WIDTHS), rel=1e-4)


def test_tables_show_the_exponent_beside_the_one_of_theory(results):
    exponents, widths = tables(results)
    assert exponents.rows == [
        ["attention and MLP", "8 to 32", "3 of 3", "1", "1.000 [1.000, 1.000]", "23.3 [10.0, 40.0]"]
    ]
    assert widths.rows[0] == ["8", "768", "45 [19, 77]"]


def test_a_draw_that_learns_nothing_somewhere_is_counted_and_has_no_line(results):
    """It keeps its dots."""
    results["F1"].facts_8[0] = 0
    exponents, widths = tables(results)
    assert exponents.rows[0][2] == "2 of 3"
    assert widths.rows[0][2] == "38 [0, 77]"
    assert fitted_lines(facts_in(results)["attention and MLP"]).notnull().all()


def test_the_page_shows_it_or_says_that_it_was_not_measured(results):
    entry = ms.report.DRAW_REPORTS.get("factual-recall")
    page = ms.report.Page(entry.title)
    entry.page(page, results)
    assert "Facts against parameters" in page.html()
    empty = ms.report.Page(entry.title)
    entry.page(empty, {})
    assert "was not measured" in empty.html()
    assert entry.tables({}) == []
