"""Completeness, minimality and random circuits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from mnemoscope.analyses.discovery import criteria
from mnemoscope.analyses.discovery.criteria import against_random, completeness, minimality, random_circuits
from mnemoscope.analyses.discovery.setting import circuit, label_edges
from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.constructed import elimination_only, store_and_match, twin_elimination
from tests.analyses.discovery.settings import arbitrary, lookup, shuffled
from tests.support import global_generators_untouched, reads_back

STORE = ("input → L0H0 v", "L0H0 → logits")


def test_a_circuit_that_is_all_there_is_loses_what_the_model_loses():
    setting = lookup(elimination_only, "exchange_answer", "elimination")
    found = completeness(setting, circuit(setting.edges, STORE), n_sets=5)
    assert found.knockout.values.tolist() == [*STORE, *(f"random {k}" for k in range(5)), "all"]
    assert found.worst == pytest.approx(0, abs=1e-6)
    assert found.circuit.sel(knockout="all") == pytest.approx(0, abs=1e-6)
    assert found.knocked_out.sel(knockout=STORE[0]).sum() == 1
    assert (found.knocked_out.sel(knockout="all").sum("edge") == 2).all()


def test_what_stands_in_for_the_circuit_shows():
    setting = lookup(twin_elimination, "exchange_answer", "elimination")
    half = circuit(setting.edges, STORE)
    found = completeness(setting, half)
    assert found.model.sel(knockout="all") == pytest.approx(0.5, abs=1e-3)  # the twin is left
    assert found.incompleteness.sel(knockout="all") == pytest.approx(0.5, abs=1e-3)
    assert found.worst == pytest.approx(0.5, abs=1e-3)


def test_incompleteness_is_its_definition():
    setting = arbitrary(dtype="float64")
    inside = np.arange(13) % 4 > 0
    found = completeness(setting, label_edges(setting.edges, inside), n_sets=7, seed=3)
    out = found.knocked_out.to_numpy()
    assert not (out & ~inside).any()
    for row, name in zip(out, found.knockout.values, strict=True):
        within, without = (setting._run(mask[None]).mean() for mask in (inside & ~row, ~row))
        expected = abs(within - without) / abs(setting.span)
        assert found.incompleteness.sel(knockout=name) == pytest.approx(expected, abs=1e-9)
    assert found["mean"] == pytest.approx(found.incompleteness.mean())
    again = completeness(setting, label_edges(setting.edges, inside), n_sets=7, seed=4)
    assert (again.knocked_out != found.knocked_out).any()


def test_every_edge_of_a_minimal_circuit_is_needed():
    setting = lookup(store_and_match, "move_repeat", "recall")
    planted = {"input → L0H1 q", "L0H1 → L0 MLP", "L0 MLP → logits"}
    found = minimality(setting, circuit(setting.edges, planted))
    assert found.minimal
    assert found.faithfulness == pytest.approx(1, abs=1e-4)
    assert {str(name) for name in found["edge"].values[found.needed]} == planted
    assert found.loss.dropna("edge").values == pytest.approx(1, abs=1e-4)
    assert found.loss.notnull().sum() == 3
    assert found.node_loss.to_series().to_dict() == pytest.approx({"L0H1": 1, "L0 MLP": 1}, abs=1e-4)
    more = minimality(setting, circuit(setting.edges, {*planted, "L0H1 → logits"}))
    assert not more.minimal
    assert more.loss.sel(edge="L0H1 → logits") == pytest.approx(0, abs=1e-4)
    assert not minimality(setting, circuit(setting.edges, planted - {"input → L0H1 q"})).minimal


def test_losses_of_parts_are_those_of_all_their_edges():
    setting = arbitrary(n_layers=2, dtype="float64")
    inside = np.random.default_rng(0).random(len(setting.edges)) < 0.8
    found = minimality(setting, label_edges(setting.edges, inside))
    assert set(found.node.values) == {"L0H0", "L0H1", "L0 MLP", "L1H0", "L1H1", "L1 MLP"}
    for part in found.node.values:
        without = [one and part not in str(edge) for edge, one in zip(setting.edges, inside, strict=True)]
        masks = np.array([inside, without])
        assert found.node_loss.sel(node=part) == pytest.approx(-np.diff(setting.faithfulness(masks))[0])


def test_random_circuits_have_the_size_and_are_drawn_alike():
    setting = arbitrary(mlp=False)
    uniform = random_circuits(setting, 3, n=3000, draw="uniform")
    assert (uniform.sum(1) == 3).all()
    assert uniform.mean(0) == pytest.approx(1 / 3, abs=0.04)
    grown = random_circuits(setting, 3, n=300)
    assert (grown.sum(1) == 3).all()
    assert (setting.prune(grown) == grown).all()
    assert len(np.unique(grown, axis=0)) > 10
    assert (random_circuits(setting, 3, n=50, seed=1) != grown[:50]).any()
    assert (random_circuits(setting, 3, n=300) == grown).all()


def test_a_planted_circuit_beats_random_ones():
    setting = shuffled()
    planted = ["input → L0H0 v", "L0H0 → L1H0 k", "input → L1H0 v", "L1H0 → logits"]
    with global_generators_untouched():
        found = against_random(setting, circuit(setting.edges, planted), n=60, n_sets=3)
    assert found.value.values[:2] == pytest.approx([1, 0], abs=0.01)
    assert found.p.values == pytest.approx([1 / 61] * 3, abs=0.02)
    assert found["rank"].values.tolist() == [1, 1, 1]
    assert found.random.shape == (3, 60)
    assert found.random.sel(measure="incompleteness").mean() > 0.2


@pytest.mark.slow
def test_p_of_a_random_circuit_is_uniform():
    setting = arbitrary(n_layers=2)
    tried = label_edges(setting.edges, random_circuits(setting, 12, n=40, seed=1), "draw")
    ps = [against_random(setting, mask, measures=("faithfulness",), n=40).p.item() for mask in tried]
    assert kstest(ps, "uniform").pvalue > 0.01


def test_ties_count_against_a_circuit():
    setting = arbitrary(mlp=False)
    mask = np.zeros(9, dtype=bool)
    mask[6] = True  # input → logits, the only edge that is a path
    found = against_random(setting, label_edges(setting.edges, mask), n=20, measures=("faithfulness", "minimality"))
    assert found.p.values.tolist() == [1, 1]
    assert found["rank"].values.tolist() == [1, 1]


def test_rounding_decides_no_rank(monkeypatch):
    setting = lookup(elimination_only, "exchange_answer", "elimination")
    planted = circuit(setting.edges, STORE)
    before, measured = against_random(setting, planted, n=20), criteria._measured

    def rounded(*args):
        found = measured(*args)
        return found + 1e-6 * np.random.default_rng(0).uniform(-1, 1, found.shape)

    monkeypatch.setattr(criteria, "_measured", rounded)
    after = against_random(setting, planted, n=20)
    assert (before.p < 1).any()
    assert after.p.values.tolist() == before.p.values.tolist()
    assert after["rank"].values.tolist() == before["rank"].values.tolist()


def test_results_read_back_and_wrong_input_is_refused(tmp_path):
    setting = lookup(elimination_only, "exchange_answer", "elimination")
    planted = circuit(setting.edges, STORE)
    results = (completeness(setting, planted), minimality(setting, planted), against_random(setting, planted, n=20))
    for number, result in enumerate(results):
        assert reads_back(result, tmp_path / f"{number}.nc")
        assert {"metric", "replacement", "n"} <= set(result.attrs)
    assert results[2].attrs["n_random"] == 20
    nothing = circuit(setting.edges, [])
    for judged in (completeness, minimality, against_random):
        with pytest.raises(InputError, match="at least one edge; got shape"):
            judged(setting, nothing)
    with pytest.raises(InputError, match="no edge of circuit lies on a path"):
        against_random(setting, circuit(setting.edges, ["input → L0H0 v"]))
    with pytest.raises(InputError, match="n must be at least 1"):
        against_random(setting, planted, n=0)
    two = replace(setting).edges[:2]
    with pytest.raises(InputError, match="9 edges"):
        completeness(setting, circuit(two, []))
