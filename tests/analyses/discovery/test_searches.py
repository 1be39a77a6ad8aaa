"""Pruning, rankings and enumeration beside brute force, and on circuits that are known."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.discovery.searches import (
    compare_with_exact,
    edge_order,
    exhaustive_search,
    greedy,
    minimal_sets,
    top_n,
)
from mnemoscope.analyses.discovery.setting import circuit, edge_coordinates, label_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL, LOGIT_DIFF
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, store_and_match
from tests.analyses.discovery.settings import arbitrary, every_mask, lookup, published, shuffled
from tests.support import reads_back

KNOWN = [
    (elimination_only, "exchange_answer", "elimination", {"input → L0H0 v", "L0H0 → logits"}),
    (dissociated, "exchange_answer", "elimination", {"input → L0H0 v", "L0H0 → logits"}),
    (store_and_match, "move_repeat", "recall", {"input → L0H1 q", "L0H1 → L0 MLP", "L0 MLP → logits"}),
    (store_and_match, "exchange_answer", "recall", {"input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits"}),
]


def names(found) -> set[str]:
    return {str(name) for name in found["edge"].values[found.values]}


def scores(setting, values) -> xr.DataArray:
    return xr.DataArray(values, dims="edge", coords=edge_coordinates(setting.edges), name="tried")


def alone(setting) -> xr.DataArray:
    """By how much the model is less faithful without each edge."""
    return scores(setting, 1 - setting.faithfulness(~np.eye(len(setting.edges), dtype=bool)))


@pytest.mark.parametrize(("make", "kind", "skill", "planted"), KNOWN)
def test_planted_circuits_are_found(make, kind, skill, planted):
    setting = lookup(make, kind, skill)
    truth = exhaustive_search(setting, target=0.9)
    assert [names(found) for found in truth.minimal] == [planted]
    found = {
        "pruned": greedy(setting, target=0.9).circuit,
        "by kl": greedy(replace(setting, metric=KL), threshold=0.01).circuit,
        "ranked": top_n(setting, alone(setting)).circuit,
        "grown": top_n(setting, alone(setting), connected=True).circuit,
    }
    assert {name: names(one) for name, one in found.items()} == dict.fromkeys(found, planted)
    beside = compare_with_exact(truth, xr.concat(list(found.values()), "method"))
    assert beside.jaccard.dims == ("method",)
    assert (beside.jaccard == 1).all()
    assert (beside.size_ratio == 1).all()
    assert beside.gap.values == pytest.approx(0, abs=1e-6)


def test_the_induction_circuit_is_found_in_two_layers():
    setting = shuffled()
    planted = {"input → L0H0 v", "L0H0 → L1H0 k", "input → L1H0 v", "L1H0 → logits"}
    found = greedy(setting, target=0.9)
    assert names(found.circuit) == names(greedy(replace(setting, metric=KL), threshold=0.01).circuit) == planted
    assert found.faithfulness == pytest.approx(1, abs=1e-4)
    assert found.n_edges == 4


@pytest.fixture(scope="module")
def micro():
    return arbitrary(mlp=False, dtype="float64", seed=4)


@pytest.mark.thorough
def test_enumeration_is_brute_force(micro):
    truth, masks = exhaustive_search(micro, target=0.5), every_mask(9)
    clean, corrupted = (side.inputs for side in (micro.pairs.clean, micro.pairs.corrupted))
    rows = np.arange(len(micro.pairs))
    answer, foil = (side.targets[:, -1] for side in (micro.pairs.clean, micro.pairs.corrupted))

    def read(mask):
        inside = {str(edge) for edge, in_it in zip(micro.edges, mask, strict=True) if in_it}
        logits = published(micro.model, clean, corrupted, inside)[:, -1].detach().numpy()
        return (logits[rows, answer] - logits[rows, foil]).mean()

    found = np.array([read(mask) for mask in masks])
    found = (found - found[0]) / (found[-1] - found[0])
    assert truth.faithfulness.values == pytest.approx(found, abs=1e-9)

    enough = {frozenset(np.flatnonzero(mask)) for mask, value in zip(masks, found, strict=True) if value >= 0.5}
    small = {one for one in enough if not any(other < one for other in enough)}
    assert {frozenset(np.flatnonzero(one)) for one in truth.minimal.to_numpy()} == small
    assert len(small) > 1
    assert truth["size"].to_numpy().tolist() == sorted(map(len, small))
    for n in range(10):
        assert truth.frontier[n] == pytest.approx(max(found[masks.sum(1) == n]), abs=1e-9)
        assert truth.best[n].sum() == n


def test_minimal_sets_need_a_look_at_all_subsets():
    reached = np.zeros(8, dtype=bool)
    reached[[0b001, 0b111, 0b110]] = True  # of 111 no subset of two elements but 110 reaches, of 101 none does
    assert np.flatnonzero(minimal_sets(reached)).tolist() == [0b001, 0b110]
    reached[0b110] = False  # 111 contains 001, though no set in between reaches
    assert np.flatnonzero(minimal_sets(reached)).tolist() == [0b001]


@pytest.mark.parametrize("metric", [LOGIT_DIFF, KL], ids=lambda metric: metric.name)
@pytest.mark.parametrize("rule", [{"threshold": 0.02}, {"target": 0.8}], ids=str)
def test_greedy_is_its_sequential_definition(rule, metric):
    setting = arbitrary(n_layers=2, mlp=False, dtype="float64", setting={"metric": metric})
    sign = -1 if metric is KL else 1
    kept, now, run = np.ones(len(setting.edges), dtype=bool), setting.ends[0].mean(), []
    for edge in reversed(range(len(setting.edges))):
        without = kept.copy()
        without[edge] = False
        m = setting._run(without[None]).mean()
        share = (m - setting.ends[1].mean()) / setting.span
        run.append(share >= rule["target"] if "target" in rule else sign * (now - m) < rule["threshold"])
        if run[-1]:
            kept, now = without, m
    found = greedy(setting, **rule)
    assert found.circuit.to_numpy().tolist() == setting.prune(kept).tolist()
    assert found.n_edges == setting.prune(kept).sum()
    assert found.faithfulness == pytest.approx(setting.faithfulness(kept[None])[0])
    assert 0 < sum(run) < len(run)


def test_top_n_runs_every_size_and_takes_the_smallest_that_is_enough(micro):
    values = np.array([0.3, -0.9, 0.1, 0.1, 0.0, -0.2, 0.8, 0.5, 0.4])
    for signed, strength in ((False, abs(values)), (True, values)):
        ranked = sorted(range(9), key=lambda edge, strength=strength: -strength[edge])
        found = top_n(micro, scores(micro, values), target=0.6, signed=signed)
        masks = np.array([np.isin(np.arange(9), ranked[:n]) for n in range(10)])
        assert found.faithfulness.values == pytest.approx(micro.faithfulness(masks))
        assert found.n_pruned.to_numpy().tolist() == micro.prune(masks).sum(1).tolist()
        taken = int((found.faithfulness.values >= 0.6).argmax())
        assert found.circuit.to_numpy().tolist() == micro.prune(masks)[taken].tolist()
        assert found["rank"].to_numpy()[ranked].tolist() == list(range(1, 10))
    backwards = scores(micro, values)[::-1]
    assert top_n(micro, backwards, target=0.6).identical(top_n(micro, scores(micro, values), target=0.6))


def test_a_connected_choice_leads_to_what_is_there():
    setting = shuffled()
    edges = setting.edges
    values = np.random.default_rng(0).random(len(edges))
    ranked, there = edge_order(setting.paths, values, signed=False, connected=True), {"logits"}
    for place, number in enumerate(ranked):
        open_ = [other for other in ranked[place:] if edges[other].reader in there]
        assert number == max(open_, key=lambda other: values[other])
        there.add(edges[number].writer)
    assert sorted(ranked) == list(range(len(edges)))


def test_agreement_by_hand():
    setting = lookup(elimination_only, "exchange_answer", "elimination")
    truth = exhaustive_search(setting)
    three = circuit(setting.edges, ["input → L0H0 v", "L0H0 → logits", "input → logits"])
    half = circuit(setting.edges, ["L0H0 → logits"])
    found = compare_with_exact(truth, xr.concat([three, half], "mine"))
    assert found.n_edges.values.tolist() == [3, 1]
    assert found.size_ratio.values.tolist() == [1.5, 0.5]
    assert found.jaccard.values == pytest.approx([2 / 3, 1 / 2])
    assert found.faithfulness.values == pytest.approx([1, 0], abs=1e-6)
    assert found.gap.values == pytest.approx([0, 0], abs=1e-6)
    assert compare_with_exact(truth, three).jaccard == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="label them by"):
        compare_with_exact(truth, three[1:])


def test_results_are_labelled_and_read_back(micro, tmp_path):
    found = {
        "exact": exhaustive_search(micro),
        "greedy": greedy(micro, target=0.9),
        "top": top_n(micro, alone(micro)),
    }
    found["agreement"] = compare_with_exact(found["exact"], found["greedy"].circuit)
    for name, result in found.items():
        assert reads_back(result, tmp_path / f"{name}.nc")
        assert {"metric", "replacement", "pairs", "n", "weights"} <= set(result.attrs)
    assert found["greedy"].attrs["target"] == found["exact"].attrs["target"] == 0.9
    assert found["top"].attrs["method"] == "top n by tried"


def test_input_that_is_no_search_is_refused(micro):
    with pytest.raises(InputError, match="one of threshold and target; got threshold None and target None"):
        greedy(micro)
    with pytest.raises(InputError, match="one of threshold and target"):
        greedy(micro, threshold=0.1, target=0.9)
    with pytest.raises(InputError, match="threshold must be above 0"):
        greedy(micro, threshold=0)
    for search in (lambda: greedy(micro, target=2), lambda: exhaustive_search(micro, target=-1)):
        with pytest.raises(InputError, match="target must be from 0 to 1"):
            search()
    with pytest.raises(InputError, match="1 NaN"):
        top_n(micro, scores(micro, [np.nan, *[1.0] * 8]))
    with pytest.raises(InputError, match="at most 16 edges; this one has 29"):
        exhaustive_search(shuffled())


def test_where_all_is_noise_nothing_is_found(micro):
    pairs = micro.pairs
    quiet = replace(micro, pairs=replace(pairs, corrupted=replace(pairs.corrupted, targets=pairs.answer)), refuse=False)
    with pytest.raises(InputError, match="no metric tells clean from corrupted"):
        exhaustive_search(replace(quiet, refuse=True))
    assert not exhaustive_search(quiet).sizes["alternative"]
    assert not top_n(quiet, scores(quiet, np.ones(9))).circuit.any()
    assert greedy(quiet, target=0.9).circuit.all()
    with pytest.raises(InputError, match="no circuit reaches the target"):
        compare_with_exact(exhaustive_search(quiet), label_edges(quiet.edges, np.ones(9, dtype=bool)))
