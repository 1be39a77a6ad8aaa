from typing import Any

import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Edge, Site
from mnemoscope.interventions.graph import model_edges
from mnemoscope.report.edges import HALF_HEIGHT, PORTS, circuit_figure, place_parts, route_edges
from mnemoscope.report.page import Page
from tests.support import random_model

INPUT, HEAD, LATER, MLP = (
    Site(kind="resid_pre", layer=0),
    Site(kind="z", layer=0, head=0),
    Site(kind="z", layer=1, head=1),
    Site(kind="mlp_out", layer=0),
)
FOUR = (
    Edge(writer=INPUT, reader=HEAD, through="q"),
    Edge(writer=HEAD, reader=MLP),
    Edge(writer=HEAD, reader=LATER, through="v"),
    Edge(writer=LATER),
)


def of(chosen, values, **options):
    return xr.DataArray(values, dims="edge", coords={"edge": [str(edge) for edge in chosen]}, **options)


def drawing(*arguments, **options) -> Any:
    return circuit_figure(*arguments, **options)


def lines(figure) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}


def written(figure):
    """Texts with their colours."""
    return {
        text: colour
        for trace in figure.data
        if trace.mode == "text"
        for text, colour in zip(trace.text, trace.textfont.color, strict=True)
    }


# ---- places and routes


def test_parts_stand_by_layer_the_embeddings_at_the_bottom():
    model = random_model(n_layers=2)
    boxes = {str(part): box for part, box in place_parts(model_edges(model, embeddings="apart")).items()}
    rows = [["embed", "pos_embed"], ["L0H0", "L0H1"], ["L0 MLP"], ["L1H0", "L1H1"], ["L1 MLP"], ["logits"]]
    assert [[name for name, box in boxes.items() if box.y == y] for y in range(6)] == rows
    assert boxes["L0H0"].x == boxes["L1H0"].x < boxes["L0H1"].x == boxes["L1H1"].x < boxes["L0 MLP"].x


@pytest.mark.parametrize("mlp", [True, False])
def test_no_edge_crosses_a_part_on_its_way(mlp):
    every = model_edges(random_model(n_layers=4, n_heads=4, mlp=mlp))
    boxes = place_parts(every)
    for edge, curve in zip(every, route_edges(every, boxes), strict=True):
        for part, box in boxes.items():
            inside = (np.abs(curve - (box.x, box.y)) < (box.half_width, HALF_HEIGHT)).all(1)
            assert not inside.any(), (str(edge), str(part))


def test_edges_start_on_top_of_their_writer_and_end_below_their_reader_at_its_input():
    every = model_edges(random_model(n_layers=2, n_heads=4))
    boxes = place_parts(every)
    for edge, curve in zip(every, route_edges(every, boxes), strict=True):
        writer, reader = boxes[edge.writer], boxes[edge.reader]
        assert curve[0, 1] == writer.y + HALF_HEIGHT
        assert curve[-1, 1] == reader.y - HALF_HEIGHT
        assert abs(curve[0, 0] - writer.x) < writer.half_width
        assert abs(curve[-1, 0] - reader.x) < reader.half_width
        assert curve[-1, 0] == pytest.approx(curve[-2, 0])  # it arrives upright
        if edge.through is not None:
            assert curve[-1, 0] == reader.x + PORTS[edge.through]
        assert (np.diff(curve[:, 1]) > 0).all()


@pytest.mark.parametrize("embeddings", ["together", "apart"])
def test_no_two_edges_of_a_small_model_lie_on_each_other(embeddings):
    every = model_edges(random_model(), embeddings=embeddings)
    assert len(every) == {"together": 13, "apart": 21}[embeddings]
    starts = {tuple(curve[0]) for curve in route_edges(every, place_parts(every))}
    assert len(starts) == len(every)


# ---- figure


def test_width_is_the_size_and_colour_the_sign():
    figure = drawing(FOUR, of(FOUR, [1.0, -2.0, 0.5, -0.5], attrs={"unit": "logits"}))
    drawn = lines(figure)
    assert set(drawn) == {str(edge) for edge in FOUR}
    width = {name: trace.line.width for name, trace in drawn.items()}
    assert width["L0H0 → L0 MLP"] == max(width.values())
    assert width["L0H0 → L1H1 v"] == width["L1H1 → logits"] < width["input → L0H0 q"]
    for name, red_above_blue in (("input → L0H0 q", True), ("L0H0 → L0 MLP", False), ("L0H0 → L1H1 v", True)):
        red, _, blue = (float(part) for part in drawn[name].line.color[4:-1].split(","))
        assert (red > blue) == red_above_blue
    assert drawn["L0H0 → L0 MLP"].hovertemplate.startswith("L0H0 → L0 MLP: -2.000")
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.colorbar.title.text) == (-2, 2, "logits")
    assert drawing(FOUR, of(FOUR, [1.0, 2, 0, 4])).layout.coloraxis.cmin == 0


def test_only_the_circuit_is_drawn_and_the_rest_is_grey_or_left_out():
    weights, included = of(FOUR, [1.0, np.nan, 2.0, 3.0]), of(FOUR, [True, False, True, True])
    grey = drawing(FOUR, weights, included)
    assert set(lines(grey)) == {"input → L0H0 q", "L0H0 → L1H1 v", "L1H1 → logits"}
    colours = written(grey)
    assert colours["<b>L0 MLP</b>"] != colours["<b>L0H0</b>"] == colours["<b>logits</b>"]
    assert len(grey.layout.shapes) == 5
    without = drawing(FOUR, weights, included, isolated="left out")
    assert "<b>L0 MLP</b>" not in written(without)
    assert len(without.layout.shapes) == 4
    nothing = drawing(FOUR, weights, of(FOUR, [False] * 4))
    assert not lines(nothing)
    assert len(nothing.layout.shapes) == 5
    assert not drawing(FOUR, weights, of(FOUR, [False] * 4), isolated="left out").layout.shapes


def test_names_of_heads_stand_in_their_boxes():
    texts = written(drawing(FOUR, of(FOUR, [1.0] * 4), names={"L0H0": "previous token head"}))
    assert any(text.startswith("<b>L0H0</b><br>") and "token head" in text for text in texts)
    assert {"q", "k", "v", "<b>L1H1</b>", "<b>input</b>", "<b>logits</b>"} <= set(texts)


def test_over_several_models_roles_take_the_place_of_numbers():
    figure = drawing(FOUR, of(FOUR, [1.0] * 4), names={"L0H0": "previous token head"}, numbered=False)
    texts = written(figure)
    assert "<b>previous</b><br><b>token head</b>" in texts
    assert "<b>L1H1</b>" in texts  # nothing is said of it
    assert not any("L0H0" in text for text in texts)
    assert "previous token head → L1H1 v" in lines(figure)


def test_weights_are_found_by_their_labels_and_the_same_edges_give_the_same_figure():
    weights = of(FOUR, [1.0, -2.0, 0.5, -0.5])
    figure = drawing(FOUR, weights)
    assert figure == drawing(FOUR, weights[::-1])
    assert figure == drawing(FOUR, xr.DataArray(weights.values, dims="edge"))


def test_a_page_takes_the_figure():
    page = Page("Circuit")
    page.figure(drawing(FOUR, of(FOUR, [1.0] * 4)), "All edges.")
    assert "L0H0 \\u2192 L0 MLP" in page.html()


@pytest.mark.parametrize(
    ("chosen", "weights", "options", "message"),
    [
        ((), of((), []), {}, "edges must name at least one, each once; got 0"),
        (FOUR * 2, of(FOUR, [1.0] * 4), {}, "edges must name at least one, each once; got 8"),
        (FOUR, of(FOUR[:3], [1.0] * 3), {}, "weights must have a value for each edge.* it lacks L1H1 → logits"),
        (FOUR, xr.DataArray([1.0], dims="edge"), {}, "it has 1 values for 4 edges"),
        (FOUR, xr.DataArray(np.ones((4, 2)), dims=("edge", "metric")), {}, "over edge, and perhaps seed; got .*metric"),
        (FOUR, xr.DataArray(np.ones((4, 2)), dims=("edge", "seed")), {}, "choose one seed, or a mean"),
        (FOUR, of(FOUR, [1.0, 1, 1, np.nan]), {}, "the weight of an edge in the circuit must be a number"),
        (FOUR, of(FOUR, [1.0] * 4), {"isolated": "hidden"}, "isolated must be one of: grey, left out"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_cannot_be_drawn_is_refused(chosen, weights, options, message):
    with pytest.raises(InputError, match=message):
        drawing(chosen, weights, **options)
