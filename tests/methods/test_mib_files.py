"""Files of MIB's circuit track: a hand-written one, the way there and back, and what is refused."""

import json

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import induction
from tests.support import foreign_model, random_model

CFG = {"n_layers": 1, "n_heads": 1, "parallel_attn_mlp": False, "d_model": 4}
SCORES = {
    "input->a0.h0<q>": 0.5,
    "input->a0.h0<k>": -0.25,
    "input->a0.h0<v>": 1.5,
    "input->m0": 0.0,
    "a0.h0->m0": 2.0,
    "input->logits": 0.125,
    "a0.h0->logits": -3.0,
    "m0->logits": 4.0,
}
OURS = {
    "input → L0H0 q": 0.5,
    "input → L0H0 k": -0.25,
    "input → L0H0 v": 1.5,
    "input → L0 MLP": 0.0,
    "L0H0 → L0 MLP": 2.0,
    "input → logits": 0.125,
    "L0H0 → logits": -3.0,
    "L0 MLP → logits": 4.0,
}
INSIDE = {"input->a0.h0<v>", "a0.h0->m0", "m0->logits"}


@pytest.fixture(scope="module")
def small():
    return random_model(n_heads=1, d_model=4)


def written(path, scores=SCORES, **edges):
    nodes = {name: {"in_graph": True} for name in ("input", "a0.h0", "m0", "logits")}
    entries = {name: {"score": score, "in_graph": name in INSIDE} for name, score in scores.items()}
    path.write_text(json.dumps({"cfg": CFG, "nodes": nodes, "edges": entries | edges}), encoding="utf-8")
    return path


def test_a_file_written_by_hand_is_read(tmp_path, small):
    found = ms.methods.read_mib_file(written(tmp_path / "graph.json"), small)
    assert dict(zip(found.edge.values.tolist(), found.values.tolist(), strict=True)) == OURS
    inside = {"input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits"}
    assert set(found.edge.values[found.chosen.values]) == inside


def test_membership_alone_counts_as_the_score(tmp_path, small):
    path = written(tmp_path / "graph.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    for entry in content["edges"].values():
        del entry["score"]
    path.write_text(json.dumps(content), encoding="utf-8")
    found = ms.methods.read_mib_file(path, small)
    assert found.values.tolist() == found.chosen.values.astype(float).tolist()


@pytest.mark.parametrize("make", [lambda: random_model(n_layers=2, n_heads=3, d_model=12), lambda: induction(12, 8)])
def test_there_and_back(make, tmp_path):
    model = make()
    edges = ms.interventions.model_edges(model)
    scores = ms.analyses.circuit(edges, map(str, edges[::3])).astype(float)
    scores = (scores * np.linspace(-1, 1, len(edges))).assign_coords(chosen=("edge", scores.values > 0))
    path = ms.methods.write_mib_file(tmp_path / "graph.json", model, scores)
    again = ms.methods.read_mib_file(path, model)
    assert np.allclose(again.values, scores.values)
    assert (again.chosen.values == scores.chosen.values).all()
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["cfg"]["n_layers"] == 2
    n_nodes = 2 + 2 * (model.cfg.n_heads + 1)
    assert next(iter(content["nodes"])) == "input"
    assert len(content["nodes"]) == n_nodes


def test_edges_stand_in_the_order_of_the_benchmark(tmp_path, small):
    edges = ms.interventions.model_edges(small)
    path = ms.methods.write_mib_file(tmp_path / "graph.json", small, ms.analyses.circuit(edges, ()).astype(float))
    assert list(json.loads(path.read_text(encoding="utf-8"))["edges"]) == list(SCORES)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"edges": {"a5.h0->logits": {"score": 1, "in_graph": False}}}, "differs in a5.h0->logits"),
        ({"scores": {"input->m0": 1.0}}, "must have the 8 edges of the model; it has 1"),
    ],
)
def test_graphs_of_other_models_are_refused(change, match, tmp_path, small):
    path = written(tmp_path / "graph.json", change.get("scores", SCORES), **change.get("edges", {}))
    with pytest.raises(InputError, match=match):
        ms.methods.read_mib_file(path, small)


def test_other_files_are_refused(tmp_path, small):
    with pytest.raises(InputError, match="does not exist"):
        ms.methods.read_mib_file(tmp_path / "nowhere.json", small)
    (tmp_path / "other.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="is no graph of MIB's circuit track"):
        ms.methods.read_mib_file(tmp_path / "other.json", small)
    shared = foreign_model(
        positional_embedding_type="rotary", rotary_dim=2, rotary_adjacent_pairs=False, n_heads=4, n_key_value_heads=2
    )
    with pytest.raises(InputError, match="share keys and values"):
        ms.methods.read_mib_file(tmp_path / "other.json", shared)
