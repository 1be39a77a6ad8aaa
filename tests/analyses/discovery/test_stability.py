"""Circuits under other prompts and choices, beside random ones."""

from functools import lru_cache

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.discovery.chance import RandomCircuits, edge_tests, jaccard, overlap_test, pair_overlaps
from mnemoscope.analyses.discovery.criteria import random_circuits
from mnemoscope.analyses.discovery.rankings import CIRCUIT_SEARCHES, GREEDY, CircuitSearch
from mnemoscope.analyses.discovery.seed_overlap import seed_stability
from mnemoscope.analyses.discovery.setting import label_edges
from mnemoscope.analyses.discovery.stability import ALL, PROMPTS, circuit_stability, resample_pairs
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import ACCURACY, KL, LOG_PROB, LOGIT_DIFF
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.systems.tiny_recall.constructed import store_and_match
from tests.analyses.discovery.settings import arbitrary, lookup
from tests.support import global_generators_untouched, random_model, reads_back, seeded

PLANTED = ["input → L0H1 q", "L0H1 → L0 MLP", "L0 MLP → logits"]
ONE = {"metrics": [LOGIT_DIFF], "replacements": ["patch"], "targets": [0.9]}
PRUNING = {GREEDY: CIRCUIT_SEARCHES[GREEDY]}
QUICK = {GREEDY: CIRCUIT_SEARCHES[GREEDY], "top n by EAP-IG": CIRCUIT_SEARCHES["top n by EAP-IG"]}


@lru_cache
def recall(kind="move_repeat"):
    return lookup(store_and_match, kind, "recall")


def draws(n=3, kind="move_repeat"):
    return resample_pairs(recall(kind).pairs, n)


@lru_cache
def planted() -> xr.Dataset:
    choices = {"metrics": [LOGIT_DIFF, LOG_PROB], "replacements": ["patch", "mean"], "targets": [0.9, 0.8]}
    contrasts = {"exchange_answer": draws(kind="exchange_answer")}
    return circuit_stability(recall().model, draws(), contrasts=contrasts, searches=QUICK, **choices)


def test_a_known_circuit_stays_with_other_prompts_metrics_targets_and_searches(tmp_path):
    found = planted()
    assert found.change.values.tolist() == [
        PROMPTS, "metric log_prob", "replacement mean", "target 0.8", "search top n by EAP-IG",
        "contrast exchange_answer", ALL,
    ]  # fmt: skip
    stays = found.sel(change=[PROMPTS, "metric log_prob", "target 0.8", "search top n by EAP-IG"])
    assert (stays.jaccard == 1).all()
    assert stays.p_jaccard.sel(change=PROMPTS) < 0.05
    assert (stays.p_jaccard < 0.1).all()  # single random circuits of three of 13 edges are equal now and then
    assert (stays.by_chance < 0.4).all()
    assert {str(edge) for edge in found.edge.values[found.core.sel(change=PROMPTS)]} == set(PLANTED)
    assert (found.n_found == 3).all()
    assert reads_back(found, tmp_path / "found.nc")


def test_other_values_outside_and_another_contrast_ask_something_else():
    found = planted().sel(change=["replacement mean", "contrast exchange_answer"])
    assert (found.jaccard < 0.7).all()
    assert (found.overlap.std("draw") < 0.2).all()


def test_an_edge_of_every_circuit_stands_beside_its_share_by_chance():
    found = planted().sel(change=PROMPTS)
    inside = found.sel(edge=PLANTED)
    assert (inside.share == 1).all()
    assert (found.share.sum("edge") == 3).all()
    np.testing.assert_allclose(inside.p, inside.expected**3)
    assert (found.q >= found.p).all()


def test_all_at_once_changes_every_choice_and_leaves_contrasts_alone():
    found = planted()
    assert found.choice.dims == ("draw", "name")
    assert set(found.choice.sel(name="pairs").values) == {"usual"}
    for draw in found.choice.draw.values:
        chosen = found.choice.sel(draw=draw)
        if (chosen.sel(name="replacement") == "patch").item():
            assert (found.circuit.sel(change=ALL, draw=draw) == found.circuit.sel(change=PROMPTS, draw=draw)).all()
        else:
            assert chosen.sel(name="search").item() == GREEDY  # an estimate is of patches


def test_another_wording_is_a_change_and_takes_part_in_all_at_once():
    """The same prompts under another name: the circuit stays."""
    found = circuit_stability(recall().model, draws(4), wordings={"reworded": draws(4)}, searches=PRUNING, **ONE)
    assert found.change.values.tolist() == [PROMPTS, "wording reworded", ALL]
    assert (found.jaccard == 1).all()
    assert set(found.choice.sel(name="pairs").values) <= {"usual", "reworded"}


def test_searches_that_rank_at_random_overlap_by_chance():
    def meaningless(setting):
        stream = torch.Generator().manual_seed(int(setting.pairs.clean.inputs.sum()))
        return label_edges(setting.edges, torch.rand(13, generator=stream, dtype=torch.float64).numpy())

    setting = arbitrary(n=20)
    search = {"at random": CircuitSearch(rank=meaningless)}
    found = circuit_stability(setting.model, resample_pairs(setting.pairs, 6), searches=search, **ONE)
    assert (found.p_jaccard > 0.05).all()
    assert (found.q > 0.05).all()


def noise(n: int) -> PromptPairs:
    """Prompts whose answers have nothing to do with them."""
    scored = torch.zeros(n, 5, dtype=torch.bool)
    scored[:, -1] = True
    inputs, targets = (torch.randint(6, (2, n, 5), generator=seeded(k)) for k in (1, 2))
    sides = [Batch(inputs=inputs[k], targets=targets[k], scored=scored) for k in (0, 1)]
    return PromptPairs(clean=sides[0], corrupted=sides[1], name="noise")


def test_an_untrained_model_has_no_circuit_to_overlap():
    pairs = resample_pairs(noise(40), 3)
    found = circuit_stability(random_model(), pairs, searches=QUICK, refuse=False, **ONE)
    assert (found.n_found == 0).all()
    assert found.jaccard.isnull().all()
    assert found.share.isnull().all()
    assert not found.core.any()
    with pytest.raises(InputError, match="clean"):
        circuit_stability(random_model(), pairs, searches=QUICK, **ONE)


def test_p_is_rarely_small_for_random_circuits():
    """Of 200 sets of four random circuits about one in twenty is below .05, and of edges no more."""
    setting, n_sets = arbitrary(), 200
    circuits = np.stack([random_circuits(setting, size, n=n_sets, seed=9 + size) for size in (3, 4, 5, 6)], 1)
    chance = RandomCircuits(n_random=200, n_circuits=4, seed=0)
    pairs = [((0, i), (0, j)) for i in range(4) for j in range(i)]
    found, edges = [], []
    for each in circuits:
        overlap, random = pair_overlaps(
            pairs, lambda place, each=each: each[place[1]], lambda place: chance.draw(setting, 3 + place[1], place[1])
        )
        found.append(overlap_test(overlap, random.mean(0))["p_jaccard"])
        edges.append(edge_tests(each, np.array([chance.frequency(setting, size) for size in (3, 4, 5, 6)]))["p"])
    assert 0.01 <= np.mean(np.array(found) <= 0.05) <= 0.09
    assert 0.35 < np.mean(found) < 0.65
    assert np.mean(np.array(edges) <= 0.05) <= 0.05


def test_two_circuits_never_have_the_same_random_one_at_a_time():
    chance, setting = RandomCircuits(n_random=5, n_circuits=20, seed=0), arbitrary()
    every = np.stack([chance.draw(setting, 3, number) for number in range(20)])
    assert every.shape == (20, 5, 13)
    assert (every.sum(-1) == 3).all()
    np.testing.assert_array_equal(every[1, :-1], every[0, 1:])
    assert jaccard(every[0, 0], every[0, 0]) == 1


def test_a_circuit_of_all_edges_overlaps_by_necessity():
    whole = np.ones((1, 2, 13), dtype=bool)
    chance = RandomCircuits(n_random=20, n_circuits=2, seed=0)
    pairs = [((0, 0), (0, 1))]
    each, random = pair_overlaps(pairs, whole.__getitem__, lambda place: chance.draw(arbitrary(), 13, place[1]))
    assert overlap_test(each, random.mean(0))["p_jaccard"] == 1


def test_seeds_are_compared_by_role():
    """The heads of the second seed have changed places; by role the circuits are the same."""
    setting = recall()
    names = [str(edge) for edge in setting.edges]
    swapped = [name.replace("H0", "H#").replace("H1", "H0").replace("H#", "H1") for name in names]
    inside = np.isin(names, PLANTED)
    of_seeds = [inside, inside, inside]
    circuits = xr.DataArray(
        np.array(of_seeds),
        dims=("seed", "edge"),
        coords={"seed": [3, 4, 5], "edge": names, "component": (("seed", "edge"), [names, swapped, names])},
    )
    found = seed_stability(setting, circuits)
    assert found.jaccard == 1
    assert found.p_jaccard < 0.05
    assert found.by_chance < 0.4
    assert {str(edge) for edge in found.edge.values[found.core]} == set(PLANTED)
    apart = circuits.copy(data=np.array([random_circuits(setting, 3, n=3, seed=seed)[0] for seed in range(3)]))
    assert seed_stability(setting, apart).p_jaccard > 0.05


def test_a_seed_without_a_circuit_counts_in_nothing():
    setting = recall()
    names = [str(edge) for edge in setting.edges]
    inside = np.isin(names, PLANTED)
    circuits = xr.DataArray(
        np.array([inside, inside, np.full(13, np.nan)]),
        dims=("seed", "edge"),
        coords={"seed": [0, 1, 2], "edge": names, "component": ("edge", names)},
    )
    found = seed_stability(setting, circuits)
    assert found.n_found == 2
    assert found.jaccard == 1
    assert found.overlap.isnull().values.tolist() == [False, False, True]
    with pytest.raises(InputError, match="at least two seeds"):
        seed_stability(setting, circuits.isel(seed=[0]))
    with pytest.raises(InputError, match="edges of setting"):
        seed_stability(setting, circuits.assign_coords(component=("edge", ["L9H9 → logits", *names[1:]])))


def test_the_same_seed_gives_the_same_circuits_and_draws():
    with global_generators_untouched():
        one, again, other = (
            circuit_stability(recall().model, draws(2), searches=QUICK, seed=seed, **ONE) for seed in (0, 0, 1)
        )
    assert one.identical(again)
    assert not one.random.equals(other.random)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pairs": 1}, "pairs must hold at least two draws"),
        ({"wordings": {"twin": draws(2)}, "contrasts": {"twin": draws(2)}}, "both have twin; rename one"),
        ({"wordings": {"other": []}}, "other must have as many draws as pairs, 2; got 0"),
        ({"metrics": []}, "metrics must name at least one choice"),
        ({"core": 2}, "core must be from 0 to 1"),
        ({"n_random": 0}, "n_random must be at least 1"),
        ({"targets": [3]}, "target must be from 0 to 1"),
        ({"replacements": ["noise"]}, "replacement must be one of"),
        ({"metrics": [ACCURACY], "searches": {"EAP": CIRCUIT_SEARCHES["top n by EAP"]}}, "put another first"),
        ({"metrics": [KL], "searches": {"EAP": CIRCUIT_SEARCHES["top n by EAP"]}}, "put another first"),
    ],
)
def test_wrong_arguments_get_one_line(changes, named):
    n = changes.pop("pairs", 2)
    with pytest.raises(InputError, match=named) as refused:
        circuit_stability(recall().model, draws(n), **{**ONE, "searches": QUICK, **changes})
    assert "\n" not in str(refused.value)
