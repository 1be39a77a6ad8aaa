import pytest
import torch
import xarray as xr

from mnemoscope.analyses.roles import by_role
from mnemoscope.analyses.shapley import removal_agreement, shapley
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.records.shapley import (
    COMPARED,
    agreement_tables,
    finding,
    interaction_figure,
    notes,
    value_figure,
    value_tables,
)
from mnemoscope.report.page import Page
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, twin_elimination
from tests.records import planted
from tests.support import seeded, small_spec

TASK = small_spec("v3").task
NAMED = {"L0H1": "recall head", "L0H0": "elimination head"}


def measured(*models, named=None) -> xr.Dataset:
    """Values of constructed models as if they were seeds."""
    batch = TASK.monitor(60, split="test", generator=seeded())
    given = {"skills": TASK.skills(batch), "reference": TASK.monitor(60, split="test", generator=seeded(1))}
    return concatenate("seed", {i: by_role(shapley(model, batch, **given), NAMED) for i, model in enumerate(models)})


@pytest.fixture(scope="module")
def two() -> xr.Dataset:
    return measured(dissociated(), shared_store())


def test_rows_hold_value_and_single_removal_and_add_up(two):
    table = value_tables(two, "accuracy")[0]
    rows = table.rows
    assert list(table.header[2:]) == ["elimination, value", "elimination, alone", "recall, value", "recall, alone"]
    assert [row[1] for row in rows] == ["recall head", "elimination head", "L0 MLP", "all together"]
    values = [float(row[2].split(" ")[0]) for row in rows]
    assert sum(values[:3]) == pytest.approx(values[3], abs=0.02)
    at = two.sel(metric="accuracy", kind="mean", role="recall head", skill="recall").lost
    assert rows[0][5] == f"{float(at.mean()):.2f} [{float(at.min()):.2f}, {float(at.max()):.2f}]"


def test_one_seed_has_its_interval_in_brackets():
    one = measured(dissociated())
    at = one.sel(metric="accuracy", kind="mean", skill="recall").isel(seed=0)
    value = at.sel(role="L0 MLP")
    values, interactions = value_tables(one, "accuracy")
    assert values.rows[2][4] == (f"{float(value.value):.2f} [{float(value.low):.2f}, {float(value.high):.2f}]")
    pair = at.sel(role="recall head", other="L0 MLP")
    rows = {row[1]: row[3] for row in interactions.rows}
    low, high = float(pair.interaction_low), float(pair.interaction_high)
    assert rows["recall head and L0 MLP"] == f"{float(pair.interaction):.2f} [{low:.2f}, {high:.2f}]"


def test_interactions_are_listed_once_and_the_largest_first(two):
    table = value_tables(two, "accuracy")[1]
    assert table.header == ("missing parts", "pair", "elimination", "recall")
    rows = table.rows
    assert len(rows) == 3
    sizes = [max(abs(float(cell.split(" ")[0])) for cell in row[2:]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)


def test_reasons_are_counted_over_seeds():
    """Of two twins either is spared by removal, since the other one is there; each is worth half."""
    twins = removal_agreement(measured(twin_elimination(), twin_elimination()))
    rows = {(row[1], row[2]): row[3:] for row in agreement_tables(twins)[0].rows}
    alone, value, *counts, why = rows["elimination head", "elimination"]
    assert float(alone.split(" ")[0]) == 0
    assert float(value.split(" ")[0]) == 0.5
    assert counts == ["0", "2", "0"]
    assert why == "redundancy with recall head: 2"
    *_, counted, why = rows["elimination head", "recall"]
    assert (counted, why) == ("2", "")  # nothing is carried: undecided


def test_outcomes_are_counted_by_removal_and_by_value(two):
    (row,) = agreement_tables(removal_agreement(two))[1].rows
    assert row[1] == "elimination and recall"
    assert sorted(row[2].split(", ")) == ["double: 1", "single: 1"]
    assert row[3] == "double: 2"


def test_bars_are_means_and_dots_are_seeds(two):
    figure = value_figure(two, "log_prob")
    bars, dots = ([trace for trace in figure.data if trace.type == kind] for kind in ("bar", "scatter"))
    assert len(bars) == len(dots) == 4  # value and removal, of two skills
    assert [trace.name for trace in bars if trace.showlegend] == ["value", "lost without it alone"]
    at = two.sel(metric="log_prob", kind="mean", skill="recall")
    assert list(bars[2].x) == pytest.approx(at.value.mean("seed").values)
    assert list(dots[3].x) == pytest.approx(at.lost.transpose("role", "seed").values.ravel())
    assert figure.layout.yaxis.ticktext == ("recall<br>head", "elimination<br>head", "L0<br>MLP")


def test_kinds_stand_below_each_other(two):
    both = xr.concat([two, two.assign_coords(kind=["zero"])], "kind", data_vars="minimal")
    for figure in (value_figure(both, "accuracy"), interaction_figure(both, "accuracy")):
        titles = [note.text for note in figure.layout.annotations]
        assert titles == ["elimination, mean", "recall, mean", "elimination, zero", "recall, zero"]
    assert len(value_tables(both, "accuracy")[0].rows) == 8


def test_a_page_takes_the_heatmap_of_interactions(two):
    figure = interaction_figure(two, "accuracy")
    heat = figure.data[1]
    expected = two.interaction.sel(metric="accuracy", kind="mean", skill="recall").mean("seed")
    torch.testing.assert_close(torch.tensor(heat.z), torch.tensor(expected.values), equal_nan=True)
    assert figure.layout.coloraxis.cmax == -figure.layout.coloraxis.cmin > 0
    page = Page("Shapley")
    page.figure(figure, "Interactions.")
    assert "elimination\\u003cbr\\u003ehead" in page.html()


def test_the_largest_value():
    coords = {"kind": ["mean"], "role": ["copy head", "MLP"], "skill": ["copy"], "metric": ["accuracy"]}
    planted_values = {("mean", "MLP", "copy", "accuracy"): 0.6}
    values = planted.along(("kind", "role", "skill", "metric"), (1, 2, 1, 1), planted_values, **coords)
    found = xr.Dataset({"value": values, "carried": values.sum("role") + 0.3})
    sentence = finding(planted.measured(shapley=found))
    assert sentence.endswith("copy: the MLP (0.55 [0.50, 0.60] of 0.85 [0.80, 0.90]).")


def test_the_comparison_is_explained_where_there_is_one(two):
    assert notes(planted.measured(shapley=two)) == ()
    assert notes(planted.measured(shapley=two, agreement=removal_agreement(two))) == (COMPARED,)
