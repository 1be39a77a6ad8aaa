from typing import Any

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.edge_roles import edges_of_seeds
from mnemoscope.analyses.estimates import approximation, attribute_edges, integrate_edges
from mnemoscope.analyses.patching import effects, patch_edges
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.interventions.graph import model_edges
from mnemoscope.records import edges
from mnemoscope.records.edges import edge_table, error_table, estimate_figure, estimate_table
from mnemoscope.report.edges import role_circuit
from mnemoscope.systems.tiny_recall.constructed import store_and_match
from tests.support import seeded, small_spec

TASK = small_spec("v3").task
MODEL = store_and_match()
ROLES = ["match", "store", "L0 MLP"]
HEADS = xr.DataArray(
    [["L0H1", "L0H0", "L0 MLP"], ["L0H0", "L0H1", "L0 MLP"]],
    dims=("seed", "role"),
    coords={"seed": [0, 1], "role": ROLES},
)
"""As if the second seed had its heads exchanged."""


def swept(analyse) -> xr.Dataset:
    """Effects on two sets of prompts, as if they were seeds."""
    found = {}
    for seed in (0, 1):
        batch = TASK.monitor(30, split="test", generator=seeded(seed))
        mask = TASK.skills(batch)["recall"]
        rows = mask.any(1)
        pairs = PromptPairs.from_task(TASK, batch.select(rows), kind="move_repeat").read_at(mask[rows])
        found[seed] = analyse(pairs)
    return concatenate("seed", found)


def seeds_of_one() -> xr.DataArray:
    return HEADS.isel(seed=[0, 0]).assign_coords(seed=[0, 1])


@pytest.fixture(scope="module")
def found() -> dict[str, xr.Dataset]:
    def analyse(pairs):
        values = patch_edges(MODEL, pairs)
        return xr.merge([values, effects(values)], combine_attrs="override")

    return {"recall": edges_of_seeds(swept(analyse), seeds_of_one())}


@pytest.fixture(scope="module")
def estimates() -> dict[str, xr.Dataset]:
    def analyse(pairs):
        made = [effects(estimate(MODEL, pairs))[["ratio"]] for estimate in (attribute_edges, integrate_edges)]
        return xr.concat(made, xr.DataArray(["EAP", "EAP-IG"], dims="estimate", name="estimate"))

    return {"recall": edges_of_seeds(swept(analyse), seeds_of_one())}


def drawn(*arguments) -> tuple[str, Any]:
    result = role_circuit(*arguments)
    assert result is not None
    return result


def test_rows_begin_with_what_is_carried_and_go_by_role(found):
    table = edge_table(found, "logit_diff", "effects")
    assert (table.title, table.header) == ("effects", ["edge", "recall, necessity", "recall, sufficiency"])
    rows = {name: cells for name, *cells in table.rows}
    assert list(rows) == ["clean less corrupted, logits", *found["recall"].edge.values]
    assert float(rows["clean less corrupted, logits"][0].split(" ")[0]) > 1
    assert rows["match → L0 MLP"] == ["1.00 [1.00, 1.00]"] * 2
    assert rows["store → L0 MLP"] == ["0.00 [0.00, 0.00]"] * 2


def test_a_long_table_keeps_the_largest_edges_in_their_order(found, monkeypatch):
    monkeypatch.setattr(edges, "MOST", 3)
    table = edge_table(found, "logit_diff", "effects")
    names = [row[0] for row in table.rows]
    assert table.title == f"effects; the 3 largest of {found['recall'].sizes['edge']}"
    assert names[1:] == ["input → match q", "match → L0 MLP", "L0 MLP → logits"]


def test_estimates_stand_beside_the_exact_necessity(found, estimates):
    table = estimate_table(found, estimates, "logit_diff")
    assert table.header == ["edge", "recall, exact", "recall, EAP", "recall, EAP-IG"]
    rows = {name: cells for name, *cells in table.rows}
    at = {"edge": "L0 MLP → logits", "metric": "logit_diff", "direction": "noising"}
    ratios = [
        found["recall"].ratio.sel(at),
        *(estimates["recall"].ratio.sel({**at, "estimate": name}) for name in ("EAP", "EAP-IG")),
    ]
    means = [float(ratio.mean("seed")) for ratio in ratios]
    assert [float(cell.split(" ")[0]) for cell in rows["L0 MLP → logits"]] == pytest.approx(means, abs=0.005)
    figure: Any = estimate_figure(found, estimates, "logit_diff")
    dots = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert set(dots) == {"EAP", "EAP-IG"}
    place = list(dots["EAP"].text).index("L0 MLP → logits, seed 1")
    assert (dots["EAP"].x[place], dots["EAP"].y[place]) == tuple(float(ratio.sel(seed=1)) for ratio in ratios[:2])


def test_errors_have_a_row_per_estimate_and_direction():
    def analyse(pairs):
        return xr.concat(
            [approximation(patch_edges(MODEL, pairs), patch_edges(MODEL, pairs))],
            xr.DataArray(["itself"], dims="estimate", name="estimate"),
        )

    table = error_table({"recall": swept(analyse)}, "logit_diff")
    assert [row[:3] for row in table.rows] == [["recall", "itself", "necessity"], ["recall", "itself", "sufficiency"]]
    assert dict(zip(table.header, table.rows[0], strict=True))["Pearson"] == "1.00 [1.00, 1.00]"
    assert dict(zip(table.header, table.rows[0], strict=True))["relative"] == "0.00 [0.00, 0.00]"


def test_the_circuit_is_a_mean_where_roles_lie_in_one_layer(found):
    ratio = found["recall"].ratio.sel(metric="logit_diff", direction="noising")
    words, figure = drawn(model_edges(MODEL), ratio, HEADS)
    assert words == "mean over 2 seeds"
    labels = {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}
    assert set(labels) == set(ratio.edge.values)
    weight = float(ratio.sel(edge="match → L0 MLP").mean("seed"))
    assert labels["match → L0 MLP"].hovertemplate.startswith(f"match → L0 MLP: {weight:+.3f}")


def test_the_circuit_of_one_seed_keeps_its_numbers(found):
    ratio = found["recall"].ratio.sel(metric="logit_diff", direction="noising").isel(seed=[0])
    words, figure = drawn(model_edges(MODEL), ratio, HEADS.isel(seed=[0]))
    assert words == "seed 0"
    labels = {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}
    weight = float(ratio.sel(edge="match → L0 MLP", seed=0))
    assert labels["L0H1 → L0 MLP"].hovertemplate.startswith(f"L0H1 → L0 MLP: {weight:+.3f}")


def test_nothing_is_drawn_where_nothing_is_told_apart(found):
    ratio = found["recall"].ratio.sel(metric="logit_diff", direction="noising")
    assert role_circuit(model_edges(MODEL), ratio * np.nan, HEADS) is None
