"""What circuits are measured on: the definitions of EAP-IG and auto-circuit, and what is noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.discovery import searches
from mnemoscope.analyses.discovery import setting as setting_module
from mnemoscope.analyses.discovery.criteria import against_random, faithfulness, minimality
from mnemoscope.analyses.discovery.searches import greedy, top_n
from mnemoscope.analyses.discovery.setting import Setting, circuit, circuit_nodes, label_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL, LOGIT_DIFF
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.analyses.discovery.settings import arbitrary, lookup, prompts, published, shared_keys
from tests.split_hooks import mean_logit_difference
from tests.support import global_generators_untouched, perturbed, random_model


@pytest.mark.parametrize("normalization", ["LN", "none"])
def test_faithfulness_is_that_of_eap_ig_and_the_circuit_that_of_auto_circuit(normalization):
    setting = arbitrary(n_layers=2, normalization=normalization, dtype="float64")
    clean, corrupted = setting.pairs.clean, setting.pairs.corrupted
    masks = np.random.default_rng(0).random((6, len(setting.edges))) < np.linspace(0.3, 0.95, 6)[:, None]

    def read(logits, metric):
        at = (logits[:, -1], clean.targets[:, -1], corrupted.targets[:, -1], setting.model(clean.inputs)[:, -1])
        return metric(*at).mean().item()

    for metric in (LOGIT_DIFF, KL):
        circuits = label_edges(setting.edges, masks, "draw")
        found = faithfulness(replace(setting, metric=metric, refuse=False), circuits)
        whole, empty = (read(setting.model(side.inputs), metric) for side in (clean, corrupted))
        for draw, mask in enumerate(masks):
            inside = {str(edge) for edge, in_it in zip(setting.edges, mask, strict=True) if in_it}
            m = read(published(setting.model, clean.inputs, corrupted.inputs, inside), metric)
            assert found.value[draw].mean() == pytest.approx(m, abs=1e-10)
            if metric is LOGIT_DIFF:
                assert found.faithfulness[draw] == pytest.approx((m - empty) / (whole - empty), abs=1e-9)


def test_circuits_of_a_model_whose_heads_share_keys_and_values():
    setting = shared_keys()
    pairs, edges = setting.pairs, setting.edges
    masks = np.random.default_rng(0).random((6, len(edges))) < np.linspace(0.3, 0.95, 6)[:, None]
    assert (setting.prune(masks) != masks).any()
    for mask, found in zip(masks, setting.values(masks), strict=True):
        inside = {str(edge) for edge, in_it in zip(edges, mask, strict=True) if in_it}
        logits = published(setting.model, pairs.clean.inputs, pairs.corrupted.inputs, inside)
        assert found == pytest.approx(mean_logit_difference(pairs, logits).detach().numpy(), abs=1e-9)
    assert circuit_nodes(label_edges(edges, masks[-1]))[:4] == ["input", "L0KV0", "L0KV1", "L0H0"]


class TestLargeGraphs:
    @pytest.fixture
    def large(self, monkeypatch):
        for module in (setting_module, searches):
            monkeypatch.setattr(module, "LARGE", 20)
        return shared_keys()

    def test_top_n_tries_growing_sizes_and_then_those_between(self, large):
        values = np.random.default_rng(0).random(len(large.edges))
        scores = xr.DataArray(values, dims="edge", coords={"edge": [str(edge) for edge in large.edges]})
        found = top_n(large, scores, target=0.5)
        taken = found.taken.values
        assert len(taken) < len(large.edges)
        assert 0 in taken
        assert len(large.edges) in taken
        masks = found["rank"].values <= taken[:, None]
        assert found.faithfulness.values == pytest.approx(large.faithfulness(masks), abs=1e-9)
        first = (found.faithfulness.values >= 0.5).argmax()
        assert taken[first] - taken[first - 1] == 1
        assert found.n_edges == large.prune(masks[first]).sum()

    def test_what_takes_too_long_says_so_before_it_starts(self, large):
        short = replace(large, max_seconds=1e-9)
        whole = circuit(short.edges, [str(edge) for edge in short.edges])
        calls = {
            "greedy pruning runs 82 circuits": lambda: greedy(short, target=0.5),
            "this runs [0-9]+ circuits of a graph with 82 edges, about": lambda: minimality(short, whole),
            "incompleteness beside random circuits runs": lambda: against_random(
                short, whole, n=5, draw="uniform", measures=["incompleteness"]
            ),
        }
        for message, call in calls.items():
            with pytest.raises(InputError, match=f"{message}.*or allow max_seconds="):
                call()
        greedy(replace(short, max_seconds=None), target=0.5)


def test_the_whole_model_is_faithful_and_the_empty_circuit_is_not():
    for replacement in ("patch", "mean", "zero"):
        setting = arbitrary(setting={"replacement": replacement, "refuse": False}, dtype="float64")
        n_edges = len(setting.edges)
        ends = setting.values(np.array([[True] * n_edges, [False] * n_edges]))
        assert ends == pytest.approx(np.stack(setting.ends))
        whole = setting.model(setting.pairs.clean.inputs)
        assert ends[0] == pytest.approx(_difference(setting, whole))
        if replacement == "patch":
            assert ends[1] == pytest.approx(_difference(setting, setting.model(setting.pairs.corrupted.inputs)))
            assert setting.faithfulness(np.array([[True] * n_edges, [False] * n_edges])) == pytest.approx([1, 0])


def _difference(setting, logits):
    rows = torch.arange(len(logits))
    answer, foil = (side.targets[:, -1] for side in (setting.pairs.clean, setting.pairs.corrupted))
    return (logits[rows, -1, answer] - logits[rows, -1, foil]).detach().numpy()


@pytest.mark.parametrize("replacement", ["patch", "mean", "zero"])
def test_pruning_changes_nothing(replacement):
    setting = arbitrary(n_layers=2, dtype="float64", setting={"replacement": replacement})
    masks = np.random.default_rng(1).random((12, len(setting.edges))) < 0.25
    assert (setting.prune(masks) != masks).any()
    assert setting._run(masks) == pytest.approx(setting._run(setting.prune(masks)), abs=1e-10)


def test_under_means_edges_without_a_path_from_the_embeddings_count():
    setting = arbitrary(setting={"replacement": "mean"}, dtype="float64")
    lone = circuit(setting.edges, ["L0H0 → logits"]).to_numpy()
    values = setting.values(np.array([lone, lone & False]))
    assert abs(values[0] - values[1]).max() > 1e-3
    other = replace(setting, replacement="patch")
    values = other.values(np.array([lone, lone & False]))
    assert (values[0] == values[1]).all()


def test_errors_are_those_of_a_ratio_of_means():
    setting = arbitrary(n=30, dtype="float64")
    mask = np.arange(len(setting.edges)) % 3 > 0
    found = faithfulness(setting, label_edges(setting.edges, mask))
    assert found.faithfulness.dims == ()
    assert found.n_edges == mask.sum()
    value, full, empty = (found[name].to_numpy() for name in ("value", "full", "empty"))
    rows = np.random.default_rng(0).integers(len(value), size=(4000, len(value)))
    drawn = (value - empty)[rows].mean(1) / (full - empty)[rows].mean(1)
    assert found.error == pytest.approx(drawn.std(), rel=0.1)
    single = replace(setting, pairs=setting.pairs.select(slice(1)))
    assert np.isnan(single.error(single.values(mask[None])))


def test_what_an_untrained_model_says_is_refused_or_left_open():
    task = PermutationLookup(repeat_ratio=0.3).for_seed(0)
    pairs = PromptPairs.from_task(task, prompts(), kind="exchange_answer").read_last()
    setting = Setting(model=random_model(d_vocab=6, n_ctx=9), pairs=pairs)
    whole = circuit(setting.edges, [str(edge) for edge in setting.edges])
    with pytest.raises(InputError, match="no metric tells clean from corrupted"):
        faithfulness(setting, whole)
    assert np.isnan(faithfulness(replace(setting, refuse=False), whole).faithfulness)


def test_models_that_do_not_fit_are_refused():
    pairs = lookup(elimination_only, "exchange_answer", "elimination").pairs
    with pytest.raises(InputError, match="reads 4 tokens and the batch has 9"):
        _ = Setting(model=random_model(n_ctx=4), pairs=pairs).ends
    broken = perturbed(random_model())
    with torch.no_grad():
        broken.W_E[:] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        _ = Setting(model=broken, pairs=pairs).ends


def test_the_global_generators_stay():
    setting = lookup(elimination_only, "exchange_answer", "elimination")
    with global_generators_untouched():
        faithfulness(setting, circuit(setting.edges, ["L0H0 → logits"]))
