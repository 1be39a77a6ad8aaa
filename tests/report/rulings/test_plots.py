from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from mnemoscope.claims.claim import Control, Criterion
from mnemoscope.report.rulings.plots import emergence_plots, plot_range, strip_plots
from tests.claims.trials import clearing, make_claim, make_evidence
from tests.report.rulings.made_up import nobody_passes, ruling, simple, two_heads


def strips(of) -> Any:
    return strip_plots(of)


def emerging(of) -> Any:
    return emergence_plots(of)


def by_name(figure):
    return {trace.name: trace for trace in figure.data}


def line_and_side(figure):
    lines = [shape.y0 for shape in figure.layout.shapes if shape.type == "line"]
    sides = [(shape.y0, shape.y1) for shape in figure.layout.shapes if shape.type == "rect"]
    return lines, sides[0]


def test_one_figure_a_part_and_one_point_a_seed():
    of = two_heads()
    figures = strips(of)
    assert [figure.layout.title.text for figure, _ in figures] == ["elimination (accuracy)", "recall (accuracy)"]
    recall, caption = figures[1]
    traces = by_name(recall)
    assert set(traces) == {"judged", "fails the gate", "negative", "positive", "mean"}
    assert len({trace.marker.symbol for trace in traces.values()}) == 5
    effects = of.evidence.effects["recall"].to_numpy()
    np.testing.assert_allclose(np.array(traces["judged"].y, dtype=float), effects[:32])
    assert traces["judged"].text[5] == "seed 5: 0.1"
    assert list(traces["fails the gate"].text)[1].startswith("seed 33 (fails the gate)")
    assert traces["fails the gate"].y[1] is None
    assert "open" in traces["fails the gate"].marker.symbol
    assert caption.endswith("recall is above 0.25 accuracy in 31 of 32 seeds. Without a value: seed 33.")
    assert traces["mean"].y[0] == pytest.approx(effects[:32].mean())


def test_controls_stand_in_columns_of_their_own():
    figure, _ = strips(two_heads())[1]
    traces = by_name(figure)
    assert list(figure.layout.xaxis.ticktext) == ["seeds", "C1", "C2"]
    assert max(traces["judged"].x) < min(traces["negative"].x) <= max(traces["negative"].x) < min(traces["positive"].x)
    assert traces["negative"].text[1] == "untrained, case 1 (negative control): -3"


def test_what_is_far_away_stands_at_the_edge_with_its_value():
    figure, _ = strips(two_heads())[1]
    control = by_name(figure)["negative"]
    assert min(control.y) >= figure.layout.yaxis.range[0] > -1
    assert [note.text for note in figure.layout.annotations] == ["↓ -3"]
    far = Control(name="far", kind="positive")
    endless = make_evidence(clearing(16, 16), controls={"far": xr.DataArray([np.inf, 0.9], dims="case")})
    figure, _ = strips(ruling(make_claim(controls=(far,)), endless))[0]
    assert [note.text for note in figure.layout.annotations] == ["↑ ∞"]
    assert all(np.isfinite(by_name(figure)["positive"].y))


@pytest.mark.parametrize(
    ("direction", "lines", "inside", "outside"),
    [("above", [0.25], 0.26, 0.24), ("below", [0.25], 0.24, 0.26), ("within", [-0.25, 0.25], -0.2, 0.3)],
)
def test_the_side_that_clears_the_margin_is_shaded(direction, lines, inside, outside):
    claim = make_claim(direction=direction)
    figure, _ = strips(ruling(claim, make_evidence(clearing(8, 16))))[0]
    drawn, (low, high) = line_and_side(figure)
    assert drawn == lines
    assert low <= inside <= high
    assert not low <= outside <= high


def test_the_scale_is_that_of_seeds_and_margin():
    part = Criterion(name="effect", quantifier="most", margin=1.0)
    judged = np.array([0.5, 2.0])
    assert plot_range(part, judged, np.array([0.5, 2.0, 3.0, 9.0, np.nan, np.inf])) == (0.5, 3.0)
    same = np.full(3, 1.0)
    low, high = plot_range(part, same, same)
    assert low < 1 < high


def test_effects_that_are_all_missing_leave_the_margin():
    figure, caption = strips(nobody_passes())[0]
    assert line_and_side(figure)[0] == [0.25]
    assert caption.endswith("Without a value: 16 of the points.")


def test_a_lone_seed_has_a_mean_without_an_interval():
    mean = by_name(strips(simple("T4", 1, 1))[0][0])["mean"]
    assert mean.y == (0.75,)
    assert mean.error_y.array is None


def test_emergence_along_a_logarithmic_step():
    of = two_heads()
    plots = emerging(of)
    assert [figure.layout.title.text for figure, _ in plots] == ["elimination (accuracy)", "recall (accuracy)", "gate"]
    figure = plots[1][0]
    (line,) = figure.data
    assert figure.layout.xaxis.type == "log"
    assert all(x > 0 for x in line.x)
    assert line.x[0] < line.x[1] == 100
    assert line.y[0] is None
    assert line.text[-1] == "step 20,000: 0.5988"
    assert figure.layout.xaxis.ticktext[0] == "0"
    assert line_and_side(figure)[0] == [0.25]
    assert line_and_side(plots[2][0])[0] == [0.99]
    assert emerging(replace(of, emergence=None)) == []


@pytest.mark.parametrize("steps", [[0], [500], [1, 2], [0, 7]])
def test_few_steps_are_drawn_too(steps):
    effects = xr.Dataset({"effect": ("step", [0.5] * len(steps))}, coords={"step": steps})
    figure, _ = emerging(replace(simple("T1", 8), emergence=effects))[0]
    assert len(figure.data[0].x) == len(steps)
    assert np.isfinite(figure.data[0].x).all()
