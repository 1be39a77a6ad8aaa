"""Amounts against sizes: dots of the draws, fitted lines, and a line of slope 1."""

import numpy as np
import xarray as xr

from mnemoscope.report import power_law_figure


def test_the_figure_has_a_dot_per_draw_and_size():
    amount = np.array([[2.0, 3.0], [20.0, 30.0], [200.0, 300.0]])
    fit = np.array([[2.4, 24.0, 240.0], [2.0, 20.0, 200.0], [3.0, 30.0, 300.0]])
    found = xr.Dataset(
        {"amount": (("d", "draw"), amount), "size": ("d", [10, 100, 1000]), "fit": (("summary", "d"), fit)},
        coords={"d": [1, 2, 3], "draw": [4, 5], "summary": ["mean", "low", "high"]},
    )
    figure = power_law_figure({"memory": found}, amount="stored", size="parameters")
    area, line, dots, slope = figure.data
    assert list(zip(dots.x, dots.y, strict=True))[2:4] == [(100, 20), (100, 30)]
    assert dots.text[3] == "memory, d 2, draw 5"
    assert list(line.y) == [2.4, 24, 240]
    assert list(area.y) == [3, 30, 300, 200, 20, 2]
    assert (list(slope.x), list(slope.y)) == ([10, 1000], [10, 1000])
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("parameters", "stored")
