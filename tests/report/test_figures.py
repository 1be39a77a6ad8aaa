import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.stacking import over_seeds
from mnemoscope.report.ablation import ablation_by_role
from mnemoscope.report.figures import COLOURS, assign_colours, break_names, heatmaps
from mnemoscope.systems.tiny_recall.analyses.predictions import predict
from mnemoscope.systems.tiny_recall.figures import attention_by_role, prediction, training_curves
from mnemoscope.systems.tiny_recall.report import analyse_run, floors
from tests.support import Predictor


@pytest.fixture(scope="module")
def results(tiny):
    return over_seeds([tiny], [analyse_run(tiny)])


@pytest.mark.full
def test_curves_carry_the_metrics_and_the_exact_floors(results):
    lines = floors(results)
    assert list(lines.values()) == pytest.approx([0.9575, 0.913], abs=0.01)
    figure = training_curves(results["metrics"], lines)
    by_name = {trace.name: trace for trace in figure.data}
    assert set(by_name) == {"train mappings", "test mappings", "elimination", "recall"}
    np.testing.assert_array_equal(by_name["recall"].y, results["metrics"].test_recall.isel(seed=0))
    assert [shape.y0 for shape in figure.layout.shapes] == pytest.approx(list(lines.values()))


def test_bars_are_means_and_dots_are_seeds(results):
    figure = ablation_by_role(results["ablation"])
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.name == "recall"]
    assert len(bars) == results["ablation"].sizes["kind"]
    at = results["ablation"].sel(skill="recall", kind="zero").isel(seed=0)
    np.testing.assert_allclose(bars[0].y, [float(at.clean_accuracy), *at.accuracy.values])


def test_of_many_parts_those_are_shown_whose_removal_costs_most(results):
    ablation = results["ablation"]
    many = ablation.isel(role=[0] * 20).assign_coords(role=[f"L{i}H0" for i in range(20)])
    costly = ("L3H0", "L17H0")
    unharmed = many.clean_accuracy.broadcast_like(many.accuracy)
    harmed = many.role.isin(costly) & (many.kind == "zero")
    few = many.assign(accuracy=unharmed.where(~harmed, 0).transpose(*many.accuracy.dims))
    figure = ablation_by_role(few)
    shown = figure.layout.xaxis.ticktext
    assert len(shown) == 1 + 16
    assert not any("<br>" in name for name in break_names(["other head"] * 17))
    assert break_names(["other head", "MLP"], panels=3) == ["other<br>head", "MLP"]
    assert set(costly) < set(shown)
    assert list(shown[1:]) == sorted(shown[1:], key=lambda name: int(name[1:-2]))
    assert figure.layout.xaxis.title.text == "16 of 20 parts: those whose removal costs most"
    assert ablation_by_role(ablation).layout.xaxis.title.text is None


def test_heatmaps_name_tokens_by_their_symbols_and_say_once_what_rows_are():
    """Axes that read "query_token 7" were not the task's words, and overlapped on a narrow page."""
    values = xr.DataArray(
        np.ones((2, 3)), dims=("query_token", "logit"), coords={"query_token": [0, 2], "logit": [0, 1, 2]}
    )
    figure = heatmaps({"one": values, "two": values}, symbols=["a", "b", "␣"])
    for trace in figure.data:
        assert list(trace.x) == ["a", "b", "␣"]
        assert list(trace.y) == ["a", "␣"]
    assert figure.layout.yaxis.title.text == "query token"
    assert figure.layout.xaxis.title.text == "logit"
    assert not figure.layout.yaxis2.title.text
    assert figure.layout.yaxis2.showticklabels is False
    assert list(heatmaps({"one": values}).data[0].y) == ["0", "2"]


def test_rows_of_several_axes_name_each():
    coords = {"layer": [0, 1], "query_pos": [0, 1], "key_pos": [0]}
    values = xr.DataArray(np.ones((2, 2, 1)), dims=tuple(coords), coords=coords)
    figure = heatmaps({"one": values})
    assert list(figure.data[0].y) == ["layer 0 query 0", "layer 0 query 1", "layer 1 query 0", "layer 1 query 1"]
    assert not figure.layout.yaxis.title.text


def test_the_loss_has_no_colour_of_a_skill():
    """The loss on unseen sequences and the first skill were one blue line in the legend."""
    assert not set(COLOURS.values()) & set(assign_colours("abcd").values()) - {COLOURS["model"]}


def test_heatmaps_show_every_role(results):
    figure = attention_by_role(results["attention"], "repeat")
    assert [note.text for note in figure.layout.annotations] == ["elimination head", "other head"]
    shares = results["attention"].share.sel(subgroup="repeat", query="x", role="elimination head").isel(seed=0)
    np.testing.assert_allclose(figure.data[0].z[:, 0], shares.sel(target="self"))


def test_prediction_marks_used_values_and_frames_the_target(tiny):
    task = tiny.spec.task
    figure = prediction(predict(Predictor(task, "bayes"), task, "3 3 4 5 2"))
    model = [trace for trace in figure.data if trace.name == "model"]
    assert list(model[2].x) == ["1", "2", "3 ✕", "4", "5 ✕"]
    assert list(model[1].marker.line.width) == [0, 0, 0, 0, 2.5]
