"""The known circuit of features: pairs that differ in y, features that are active on them, and methods that find it.

That its edges carry all of the answer, and no others any of it, is tested with those of other guests
(`tests/methods/test_known.py`).
"""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.systems.dictionaries.circuits import NAME, PAIRS, neurons_as_features, other_answers
from mnemoscope.systems.dictionaries.constructed import LOGIT, mixtures


@pytest.fixture(scope="module")
def known():
    return ms.methods.KNOWN_CIRCUITS.get(NAME)()


def test_pairs_have_one_x_and_two_answers():
    pairs = other_answers(50, 0)
    sides = [side.inputs for side in (pairs.clean, pairs.corrupted)]
    assert (sides[0][:, [0, 4]] == sides[1][:, [0, 4]]).all()
    assert (sides[0][:, 1] != sides[1][:, 1]).all()
    assert len({tuple(row) for row in sides[0][:, :2].tolist()}) == len(PAIRS)
    assert (other_answers(50, 0).clean.inputs == sides[0]).all()
    assert (pairs.clean.targets[:, -1] == sides[0][:, 1]).all()


def test_one_feature_of_the_memory_and_one_other_are_active(known):
    pairs = known.pairs(25, 1)
    features = known.model.run_with_cache(pairs.clean.inputs)[1]["blocks.0.hook_feature"][:, -1]
    assert (features > 0.5).sum(1).tolist() == [2] * 25
    memory, decoys = (features > 0.5).nonzero()[:, 1].view(25, 2).T
    assert [PAIRS[number] for number in memory.tolist()] == [tuple(row) for row in pairs.clean.inputs[:, :2].tolist()]
    assert (decoys >= len(PAIRS)).all()
    answers = ms.run_with(known.model, pairs.clean, [])[:, -1].topk(2)
    assert (answers.indices[:, 0] == pairs.clean.targets[:, -1]).all()
    assert (answers.values[:, 0] - answers.values[:, 1]).numpy() == pytest.approx(LOGIT, abs=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("method", ["eap", "eap-ig-inputs", "edge-patching"])
def test_graphs_by_attribution_are_the_circuit(known, method):
    found = ms.methods.try_circuit(known, [method, "random"], n=25, n_draws=1).sel(ranking="absolute").squeeze("draw")
    assert found.auroc.sel(finder=method) == found.precision_at_size.sel(finder=method) == 1
    assert found.precision.sel(finder=method) == 1
    assert found.recall.sel(finder=method) > 0.7  # .9 of the effect needs not all features
    assert found.auroc.sel(finder="random") < 0.7


def test_neurons_that_mix_the_memory_have_edges_that_cancel():
    """Into the MLP as one part the heads of a and b carry nothing; into single neurons they carry most."""
    model, pairs = mixtures(), other_answers(25, 2)
    split = ms.with_dictionaries(model, [neurons_as_features(model)])
    whole, parts = (ms.analyses.attribute_edges(each, pairs, directions=["noising"]) for each in (model, split))
    moved = {
        name: (each.value - each.clean).isel(metric=0, direction=0) for name, each in (("one", whole), ("n", parts))
    }
    assert abs(moved["one"].sel(edge=["L0H2 → L0 MLP", "L0H3 → L0 MLP"])).max() < 1e-3
    of_heads = [
        abs(moved["n"].sel(edge=[f"L0H{head} → L0F{number}" for number in range(model.cfg.d_mlp)])).sum("edge").mean()
        for head in range(4)
    ]
    assert of_heads[2] > of_heads[1] < of_heads[3]
    np.testing.assert_allclose(moved["n"].sel(edge="L0 error → logits"), 0, atol=1e-4)


@pytest.mark.full
def test_methods_and_files_that_know_mlps_leave_it_out(known, tmp_path):
    found = ms.methods.try_circuit(known, ["activation-patching", "information-flow"], n=25, n_draws=1)
    assert "features in the place of MLPs" in found.refused.sel(finder="activation-patching").item()
    assert not found.refused.sel(finder="information-flow").item()
    with pytest.raises(ms.InputError, match="know no features"):
        ms.methods.write_mib_file(tmp_path / "graph.json", known.model, found.score)
    assert NAME not in ms.methods.trial._names("known circuit", ms.methods.KNOWN_CIRCUITS, None)
