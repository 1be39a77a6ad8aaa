from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.interventions.graph import model_edges
from mnemoscope.records.discover import (
    BY_EFFECT,
    GREEDY,
    NO_TRUTH,
    SMALLEST,
    TRUTH,
    Discover,
    circuit_by_role,
    circuit_table,
    control_table,
    curve_figure,
    finding,
    member_table,
    notes,
)
from mnemoscope.records.record import MeasuredRuns
from tests.records.planted import SEEDS
from tests.support import random_model

MODEL = random_model(n_heads=1)
EDGES = model_edges(MODEL)  # 8: into the head's q, k and v, the MLP and the logits
NAMES = [str(edge) for edge in EDGES]
COMPONENT = xr.DataArray(
    [["L0H0", "L0 MLP"]] * 3, dims=("seed", "role"), coords={"seed": [0, 1, 2], "role": ["the head", "L0 MLP"]}
)


def found(searches=(SMALLEST, GREEDY, BY_EFFECT), seeds=(0, 1, 2)) -> xr.Dataset:
    """Three seeds, of which the last tells nothing apart; the second has two edges more, and another third search."""
    circuit = np.zeros((3, len(searches), 8))
    circuit[:, :, NAMES.index("L0 MLP → logits")] = circuit[1, :, :2] = 1
    circuit[1, 2:, :1] = 0
    circuit[2] = np.nan
    alive = np.array([1, 1, np.nan])[:, None] * np.ones(len(searches))
    measures = {"value": [0.9, 0.1, 0.5], "p": [0.05, 0.2, 0.1], "rank": [1, 2, 1]}
    return xr.Dataset(
        {
            "circuit": (("seed", "search", "edge"), circuit),
            "n_edges": (("seed", "search"), circuit.sum(-1)),
            "curve": (("seed", "search", "taken"), alive[..., None] * np.linspace(0, 1, 9)),
            **dict.fromkeys(("faithfulness", "size_ratio", "jaccard", "gap"), (("seed", "search"), alive)),
            **{name: (("seed", "search", "measure"), alive[..., None] * v) for name, v in measures.items()},
            "random": (("seed", "search", "measure", "draw"), alive[..., None, None] * np.full((3, 4), 0.25)),
            "effect": (("seed", "edge"), alive[:, :1] * np.linspace(0.3, 1, 8)),
            "n_minimal": ("seed", [1, 2, np.nan]),
        },
        coords={
            "seed": [0, 1, 2],
            "edge": [name.replace("L0H0", "the head") for name in NAMES],
            "search": list(searches),
            "measure": ["faithfulness", "incompleteness", "minimality"],
        },
        attrs={"target": 0.9},
    ).sel(seed=list(seeds))


def drawn(trace) -> bool:
    return trace.mode == "lines+markers"


def test_every_search_has_a_row_over_the_seeds_that_have_a_circuit():
    result = {"recall": found()}
    table = circuit_table(result, "how")
    rows = table.rows
    assert table.title.endswith("; how")
    assert all(len(row) == len(table.header) for row in rows)
    assert rows[0][:4] == ["recall", SMALLEST, "2 of 3 (seeds 0, 1)", "2.0 [1.0, 3.0]"]
    assert rows[2][:4] == ["recall", BY_EFFECT, "2 of 3 (seeds 0, 1)", "1.5 [1.0, 2.0]"]
    assert rows[0][-1] == "1.5 [1.0, 2.0]"
    without = circuit_table({"recall": found((GREEDY, BY_EFFECT))}, "how")
    assert len(without.rows[0]) == len(without.header) == 5


def test_one_of_several_seeds_is_named_and_has_no_interval():
    """A number from one seed would look like one from all of them."""
    table = circuit_table({"recall": found(seeds=(1, 2))}, "how")
    assert table.rows[0][2:4] == ["1 of 2 (seed 1)", "3.0"]
    assert table.rows[0][2].mean == 1
    whole = circuit_table({"recall": found(seeds=(0, 1))}, "how")
    assert whole.rows[0][2:4] == ["2", "2.0 [1.0, 3.0]"]
    with_one = searched([0.95, 0.5])
    with_one = with_one.where(with_one.seed == SEEDS[0])
    with_one.attrs["target"] = 0.9
    assert f"3 of 4 edges (greedy; faithfulness 0.95; seeds: 1 of 2 (seed {SEEDS[0]}))" in finding(
        measured(discovery_copy=with_one)
    )


def test_edges_are_counted_among_the_seeds_that_have_a_circuit():
    result = {"elimination": found(), "recall": found()}
    table = member_table(result, "how")
    assert table.header == ["skill", "edge", SMALLEST, GREEDY, BY_EFFECT]
    rows = [row[1:] for row in table.rows if row[0] == "recall"]
    assert rows == [
        ["input → the head q", "1/2", "1/2", "0/2"],
        ["input → the head k", "1/2", "1/2", "1/2"],
        ["L0 MLP → logits", "2/2", "2/2", "2/2"],
    ]


def test_searches_with_the_same_circuits_stand_among_random_ones_once():
    rows = control_table({"recall": found()}, "how").rows
    assert [row[:3] for row in rows[::3]] == [
        ["recall", SMALLEST, "faithfulness"],
        ["recall", BY_EFFECT, "faithfulness"],
    ]
    assert rows[1][2:] == [
        "incompleteness",
        "0.100 [0.100, 0.100]",
        "0.250 [0.250, 0.250]",
        "0.200 [0.200, 0.200]",
        "0/2",
    ]
    assert rows[0][-1] == "2/2"


def test_the_circuit_is_as_wide_as_the_share_of_seeds():
    words, figure = circuit_by_role(EDGES, found(), COMPONENT)
    lines: dict[str, Any] = {trace.name: trace for trace in figure.data if drawn(trace)}
    assert words == "mean over 3 seeds"
    assert set(lines) == {"input → the head q", "input → the head k", "L0 MLP → logits"}
    assert lines["L0 MLP → logits"].hovertemplate.startswith("L0 MLP → logits: +1.000")
    assert lines["input → the head q"].hovertemplate.startswith("input → the head q: +0.500")
    assert figure.layout.coloraxis.colorbar.title.text == "share of seeds"


def test_of_one_seed_it_is_as_wide_as_what_is_lost_and_of_none_there_is_no_picture():
    words, figure = circuit_by_role(EDGES, found(seeds=[0]), COMPONENT.sel(seed=[0]))
    (line,) = [trace for trace in figure.data if drawn(trace)]
    assert words == "seed 0"
    assert line.hovertemplate.startswith("L0 MLP → logits: +1.000")
    assert figure.layout.coloraxis.colorbar.title.text == "faithfulness lost without it"
    assert circuit_by_role(EDGES, found(seeds=[2]), COMPONENT.sel(seed=[2])) is None


def test_curves_of_all_circuits_and_of_rankings():
    figure = curve_figure({"elimination": found(), "recall": found((GREEDY, BY_EFFECT))})
    names = [trace.name for trace in figure.data]
    assert names == ["best of all circuits", BY_EFFECT, BY_EFFECT]
    np.testing.assert_allclose(figure.data[0].y, np.linspace(0, 1, 9))
    assert {shape.y0 for shape in figure.layout.shapes} == {0.9}


def searched(faithfulness, target=0.9):
    coords = {"search": ["greedy", "top n"], "seed": SEEDS, "edge": list("abcd")}
    each = {
        "n_edges": (("seed", "search"), [[3, 2], [3, 2]]),
        "faithfulness": (("seed", "search"), [faithfulness, faithfulness]),
        "circuit": (("seed", "search", "edge"), np.zeros((2, 2, 4), dtype=bool)),
    }
    return xr.Dataset(each, coords=coords, attrs={"target": target})


def measured(**results):
    return MeasuredRuns(results=results, options=Discover(), runs=[])


def test_circuits_that_are_as_faithful_as_asked_on_other_prompts():
    said = finding(measured(discovery_copy=searched([0.95, 0.5]), discovery_count=searched([0.95, 0.92])))
    assert said.startswith("Circuits that keep 0.9 of the metric on other prompts: for copy 3 [3, 3] of 4 edges")
    assert "for copy 3 [3, 3] of 4 edges (greedy; faithfulness 0.95" in said
    assert "for count 2 [2, 2] of 4 edges (top n; faithfulness 0.92" in said
    assert "for copy no search found one" in finding(measured(discovery_copy=searched([0.1, 0.5])))


def test_without_a_circuit_of_a_learned_skill_nothing_is_said():
    assert finding(measured(roles=xr.Dataset())) == ""


def test_the_note_says_whether_every_circuit_was_run():
    assert notes(measured(discovery_copy=found())) == (TRUTH,)
    assert notes(measured(discovery_copy=searched([1, 1]))) == (NO_TRUTH.format(16),)
