"""A trial: its table, what it keeps, and intervals over families."""

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.methods import trial
from mnemoscope.methods.summary import _interval

CIRCUITS = ["induction", "induction-noised"]
METHODS = ["eap", "random", "minimal-circuits"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    store = tmp_path_factory.mktemp("kept")
    return ms.methods.try_methods(CIRCUITS, METHODS, n=6, n_draws=2, store=store), store


def test_a_tree_with_a_dataset_for_each_circuit(tried):
    tree, _ = tried
    assert list(tree.children) == CIRCUITS
    one = tree["induction"]
    assert one.auroc.dims == ("finder", "draw", "ranking")
    assert one.faithfulness.dims == ("finder", "draw", "ranking", "share")
    assert one.score.sizes["edge"] == len(one.truth)
    assert one.refused.sel(finder="eap").item() == ""
    assert "at most 16 edges" in one.refused.sel(finder="minimal-circuits").item()
    assert one.auroc.sel(finder="minimal-circuits").isnull().all()
    assert (one.faithfulness.sel(share=1.0, finder="eap") - 1 < 1e-5).all()


def test_draws_differ_and_seeds_repeat(tried):
    again = ms.methods.try_methods(["induction"], METHODS, n=6, n_draws=2)["induction"]
    first = tried[0]["induction"]
    assert np.array_equal(again.score.values, first.score.values, equal_nan=True)
    assert not np.array_equal(first.score.isel(draw=0).values, first.score.isel(draw=1).values)
    other = ms.methods.try_methods(["induction"], ["eap"], n=6, n_draws=1, seed=5)["induction"]
    assert not np.allclose(other.score.values[0, 0], first.score.values[0, 0])


def test_results_are_kept_and_taken_again(tried, monkeypatch):
    tree, store = tried
    monkeypatch.setattr(trial, "try_circuit", lambda *args, **options: pytest.fail("measured again"))
    monkeypatch.setattr(trial.Piece, "stamp", property(lambda piece: tree["induction"].attrs["stamp"]))
    again = ms.methods.try_methods(["induction"], METHODS, n=6, n_draws=2, store=store)["induction"]
    xr.testing.assert_identical(again.to_dataset().drop_attrs(), tree["induction"].to_dataset().drop_attrs())


def test_a_result_of_other_options_is_measured_anew(tried):
    _, store = tried
    piece = trial.Piece(name="induction", methods=tuple(METHODS), n=6, n_draws=2, seed=0, kept=store / "induction.nc")
    assert piece.kept is not None
    assert piece.read() is not None
    assert trial.Piece(name="induction", methods=tuple(METHODS), n=7, n_draws=2, seed=0, kept=piece.kept).read() is None
    piece.kept.write_bytes(piece.kept.read_bytes()[:200])
    assert piece.read() is None


def test_means_over_families(tried):
    found = ms.methods.summarise(tried[0])
    assert found.attrs["n_families"] == 1
    assert found.attrs["n_circuits"] == 2
    assert found.n_circuits.sel(finder=METHODS).values.tolist() == [2, 2, 0]
    assert found.auroc.sel(bound="mean", finder="eap", ranking="absolute") == pytest.approx(
        np.mean([each.auroc.sel(finder="eap", ranking="absolute").values for each in tried[0].children.values()])
    )
    assert found.auroc.sel(bound=["low", "high"]).isnull().all()
    assert found.over_random.sel(bound="mean", finder="random").values.tolist() == [0, 0]


def test_intervals_hold_the_spread_over_families():
    values = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    mean, low, high = _interval(values, 0)
    assert mean == pytest.approx(0.75)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(6), rel=0.15)
    assert _interval(np.ones(6), 0) == (1, 1, 1)
    assert np.isnan(_interval(values[:4], 0)[1])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"circuits": ["inductoin"]}, "known circuit must be one of: .*; got 'inductoin'"),
        ({"methods": ["eapp"]}, "method must be one of: .*; got 'eapp'"),
        ({"circuits": []}, "at least one known circuit must be named"),
        ({"n": 1}, "n must be at least 2; got 1"),
        ({"n_draws": 0}, "n_draws must be at least 1; got 0"),
        ({"circuits": ["induction"], "methods": ["minimal-circuits"], "n": 4}, "no method takes the known circuit"),
    ],
)
def test_wrong_arguments(arguments, match):
    with pytest.raises(InputError, match=match):
        ms.methods.try_methods(**arguments)
