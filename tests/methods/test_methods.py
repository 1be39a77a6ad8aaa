"""Every method finds a planted circuit; random scores do not; a method of a user's own stands beside them."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.methods import KNOWN_CIRCUITS
from mnemoscope.methods.method import METHODS, describe
from mnemoscope.methods.searches import _gains, random_scores
from mnemoscope.methods.trial import _setting

FIND_PARTS = {"activation-patching", "activation-patching-denoising", "attribution-patching", "information-flow"}
NEAR = {"optimal-ablation", "edge-ablation-zero"}
SMALL = {"minimal-circuits"}
NAMES = ms.methods.METHODS.names(())
FINDERS = [name for name in NAMES if name not in {"random", *FIND_PARTS, *NEAR, *SMALL}]


def _timed(name):
    """Methods that learn, or prune several times, take more than the quick lane has."""
    return pytest.param(name, marks=pytest.mark.full) if name in {"ugs", "acdc", "optimal-ablation"} else name


@pytest.fixture(scope="module")
def known():
    return KNOWN_CIRCUITS.get("induction")()


@pytest.fixture(scope="module")
def setting(known):
    return _setting(known, known.pairs(12, 0))


def truth(known, setting) -> np.ndarray:
    return ms.analyses.circuit(setting.edges, known.edges).to_numpy()


@pytest.mark.parametrize("name", [_timed(name) for name in FINDERS])
def test_methods_find_the_induction_circuit(name, known, setting):
    found = ms.methods.score_edges(name, setting, seed=1)
    inside = truth(known, setting)
    assert abs(found.to_numpy()[inside]).min() > abs(found.to_numpy()[~inside]).max()
    assert found.chosen.to_numpy()[inside].all()


@pytest.mark.parametrize("name", [_timed(name) for name in sorted(FIND_PARTS | NEAR)])
def test_methods_that_look_at_parts_or_at_one_prompt_come_near(name, known, setting):
    found = abs(ms.methods.score_edges(name, setting).to_numpy())
    assert ms.methods.auroc(found, truth(known, setting)) > 0.7


def test_minimal_circuits_are_counted_in_small_models():
    small = KNOWN_CIRCUITS.get("recall-place")()
    setting = _setting(small, small.pairs(12, 0))
    found = ms.methods.score_edges("minimal-circuits", setting)
    assert (found.to_numpy() == truth(small, setting)).all()
    large = KNOWN_CIRCUITS.get("induction")()
    with pytest.raises(InputError, match="at most 16 edges"):
        ms.methods.score_edges("minimal-circuits", _setting(large, large.pairs(4, 0)))


def test_random_scores_find_nothing(known, setting):
    inside = truth(known, setting)
    found = [ms.methods.auroc(random_scores(setting, seed).to_numpy(), inside) for seed in range(40)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.08)


def test_edges_that_work_against_the_answer_are_negative():
    """The head that rules the recalled value out lowers the answer."""
    small = KNOWN_CIRCUITS.get("recall-value")()
    setting = _setting(small, small.pairs(12, 0))
    for name in ("edge-patching", "eap", "edge-shapley", "eap-ig-inputs"):
        found = ms.methods.score_edges(name, setting)
        assert found.sel(edge="L0H0 → logits") < -0.1, name
        assert found.sel(edge="L0H0 → L0 MLP") > 0.1, name


def test_shapley_gains_add_up_to_the_whole_effect(setting):
    gains = _gains(setting, np.random.default_rng(0).permutation(len(setting.edges)))
    assert gains.sum() == pytest.approx(setting.span, rel=1e-4)


def test_a_method_of_ones_own_is_one_function(known):
    def by_name(setting, seed):
        """Knows the answer."""
        return ms.analyses.circuit(setting.edges, known.edges).astype(float)

    with mock.patch.dict(METHODS._items):
        METHODS.add("by name", by_name)
        assert describe("by name") == "Knows the answer"
        result = ms.methods.try_circuit(known, ["by name", "random"], n=6, n_draws=1)
    assert result.auroc.sel(finder="by name").values.tolist() == [[1, 1]]
    assert result.precision.sel(finder="by name").item() == result.recall.sel(finder="by name").item() == 1


@pytest.mark.parametrize(
    ("scores", "match"),
    [
        (lambda edges: xr.DataArray(np.zeros(3), dims="edge"), "labelled along edge"),
        (lambda edges: edges * np.nan, "one finite number per edge"),
    ],
)
def test_results_that_are_no_scores_are_refused(scores, match, setting):
    empty = ms.analyses.circuit(setting.edges, ()).astype(float)
    wrong = {"wrong": lambda setting, seed: scores(empty)}
    with mock.patch.dict(METHODS._items, wrong), pytest.raises(InputError, match=match):
        ms.methods.score_edges("wrong", setting)


def test_edge_patching_refuses_graphs_that_would_take_too_long(known, monkeypatch):
    monkeypatch.setattr("mnemoscope.analyses.discovery.setting.LARGE", 5)
    hurried = replace(_setting(known, known.pairs(4, 0)), max_seconds=0.0)
    with pytest.raises(InputError, match=r"edge patching runs 29 circuits .* take eap-ig-inputs"):
        ms.methods.METHODS.get("edge-patching")(hurried, 0)


@pytest.mark.parametrize("name", ["edge-shapley", "optimal-ablation"])
def test_methods_that_run_circuits_for_every_edge_refuse_large_graphs(name, setting, monkeypatch):
    monkeypatch.setattr("mnemoscope.methods.method.MOST_EDGES", 28)
    with pytest.raises(InputError, match=f"{name} takes models with at most 28 edges.* got 29; take edge-patching"):
        ms.methods.score_edges(name, setting)
