"""`mnemoscope dictionary`: files for every run and seed, what is there stays, and tables of quality and agreement."""

import json
from pathlib import Path
from unittest import mock

import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.training import dictionaries

SHORT = ["--n-steps", "20", "--width", "1"]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(dictionaries, "_MAX_ROWS", 2**10)


@pytest.fixture
def trained(two_seeds, tmp_path, monkeypatch):
    """Two seeds of a dictionary for each of two runs."""
    monkeypatch.chdir(tmp_path)
    main(["dictionary", "train", str(two_seeds), "--seeds", "0-1", *SHORT])
    return two_seeds


def files(place):
    return {str(file.relative_to(place)): file.stat().st_mtime_ns for file in place.rglob("*.safetensors")}


@pytest.mark.full
def test_what_is_there_stays_and_what_is_missing_comes(trained, tmp_path, capsys):
    place = tmp_path / "dictionaries"
    before = files(place)
    [label] = ms.models.by_label(ms.find_runs(trained))
    assert {*before} == {f"{label}/seed-0{run}/dictionary-0{seed}.safetensors" for run in (3, 4) for seed in (0, 1)}
    (place / label / "seed-03" / "dictionary-01.safetensors").unlink()
    main(["dictionary", "train", str(trained), "--seeds", "0-2", *SHORT])
    after = files(place)
    kept = [name for name in before if "seed-03/dictionary-01" not in name]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert len(after) == 6
    assert "3 trained, 3 there already" in capsys.readouterr().out
    first = ms.load_dictionary(place / label / "seed-03" / "dictionary-00.safetensors")
    recipe = ms.DictionaryRecipe(**json.loads((place / "recipe.json").read_text()))
    assert ms.train_dictionary(ms.find_runs(trained)[0], recipe=recipe, seed=0) == first
    with pytest.raises(SystemExit):
        main(["dictionary", "train", str(trained), "--seeds", "0", "--n-steps", "30", "--width", "1"])
    assert "another recipe (n_steps=20)" in capsys.readouterr().err


@pytest.mark.full
def test_a_kill_leaves_no_half_file(trained, tmp_path):
    with mock.patch.object(Path, "replace", side_effect=KeyboardInterrupt), pytest.raises(SystemExit):
        main(["dictionary", "train", str(trained), "--seeds", "5", *SHORT])
    assert len(files(tmp_path / "dictionaries")) == 4
    assert not list((tmp_path / "dictionaries").rglob(".*"))


@pytest.mark.full
def test_quality_and_agreement_lie_along_seeds(trained, tmp_path, capsys):
    main(["dictionary", "measure", str(trained), "--n", "50"])
    [label] = ms.models.by_label(ms.find_runs(trained))
    quality = xr.load_dataset(tmp_path / "results" / label / "dictionary-measure" / "quality.nc", engine="h5netcdf")
    assert quality.recovered.sizes == {"seed": 2, "dictionary_seed": 2, "baseline": 2}
    assert quality.seed.values.tolist() == [3, 4]
    main(["dictionary", "agree", str(trained), "--n", "50"])
    place = tmp_path / "results" / label / "dictionary-agree-dictionaries"
    agreement = xr.load_dataset(place / "agreement.nc", engine="h5netcdf")
    assert agreement.share.sizes == {"seed": 2, "pair": 1}
    main(["dictionary", "agree", str(trained), "--n", "50", "--between", "models"])
    place = tmp_path / "results" / label / "dictionary-agree-models"
    agreement = xr.load_dataset(place / "agreement.nc", engine="h5netcdf")
    assert agreement.pair.values.tolist() == ["3 and 4"]
    printed = capsys.readouterr().out
    for words in ("loss recovered, from the mean", "share with a partner", "over seeds of the model"):
        assert words in printed


@pytest.mark.full
def test_analyses_have_the_features_of_every_run(trained, tmp_path, capsys):
    """One name stands for the dictionary of each run; what is patched is called a feature."""
    names = ["--dictionary", "dictionaries/dictionary-00.safetensors"]
    main(["patch", str(trained), *names, "--kind", "feature", "--over", "layer", "neuron", "--n", "12"])
    [label] = ms.models.by_label(ms.find_runs(trained))
    place = tmp_path / "results" / f"{label}-dictionaries"
    patched = xr.load_dataset(next((place / "patch").glob("patch_*.nc")), engine="h5netcdf")
    assert patched.sizes["feature"] == ms.find_runs(trained)[0].hooked().cfg.d_mlp
    assert ", feature " in capsys.readouterr().out
    main(["neurons", str(trained), *names, "--units", "features", "--n", "32", "--sampled"])
    assert list((place / "neurons").glob("*.html"))
    with pytest.raises(SystemExit):
        main(["patch", str(trained), "--dictionary", "dictionaries/dictionary-07.safetensors", "--n", "12"])
    assert "dictionary-07.safetensors" in capsys.readouterr().err


@pytest.mark.full
def test_edges_and_circuits_have_features_as_parts(trained, tmp_path, capsys):
    names = ["--dictionary", "dictionaries/dictionary-00.safetensors"]
    main(["edges", str(trained), *names, "--n", "12", "--method", "eap"])
    [label] = ms.models.by_label(ms.find_runs(trained))
    place = tmp_path / "results" / f"{label}-dictionaries"
    edges = xr.load_dataset(place / "edges" / "edges_recall.nc", engine="h5netcdf").edge.values.tolist()
    n_features, (n_heads, ways) = ms.find_runs(trained)[0].hooked().cfg.d_mlp, (2, 3)
    assert len(edges) == n_heads * ways + (n_features + 1) * (1 + n_heads + 1) + 1 + n_heads
    assert "L0F3 → logits" in edges
    assert "L0 error → logits" in edges
    assert not any("MLP" in edge for edge in edges)
    assert "L0F3 of two seeds are two features" in (place / "edges" / "edges.html").read_text()
    main(["discover", str(ms.find_runs(trained)[0].path), *names, "--n", "8", "--n-random", "2", "--skills", "recall"])
    found = xr.load_dataset(place / "discover" / "discovery_recall.nc", engine="h5netcdf")
    assert set(found.edge.values.tolist()) == set(edges)
    main(["dictionary", "train", str(trained), "--read", "resid_post", "--kind", "sae", *SHORT, "--out", "streams"])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["edges", str(trained), "--dictionary", "streams/dictionary-00.safetensors", "--n", "12"])
    assert "take a transcoder of the MLP" in capsys.readouterr().err
