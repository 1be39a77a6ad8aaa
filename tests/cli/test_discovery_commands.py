"""`discover`, `probe` and `interchange`: what they write, what they find in trained models, and what they refuse."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.patching import effects, patch_edges
from mnemoscope.analyses.probe_rows import with_latent
from mnemoscope.cli import main
from mnemoscope.models.run import open_run
from mnemoscope.records import discover, probe
from mnemoscope.systems.tiny_recall import records as interchange
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from mnemoscope.training.loop import train
from tests.cli import written
from tests.support import small_spec

COMMANDS = {
    "discover": (
        ["--n", "20", "--n-random", "5"],
        {"gate", "roles", "discovery_elimination", "discovery_recall"},
        {"circuits", "edges", "random"},
    ),
    "probe": (
        ["--n", "40", "--latents", "is_repeat", "unused", "--sites", "z", "post"],
        {"gate", "probes", "erased"},
        {"read", "erased"},
    ),
    "interchange": (
        ["--n", "40", "--n-pairs", "60", "--n-random", "2"],
        {"gate", "interchange", "untrained"},
        {"scores", "variables", "places", "seeds"},
    ),
}


def train_seeds(path, seeds, **changes):
    for seed in seeds:
        train(small_spec("v3", seed=seed, changes=changes), path / f"seed-{seed}")
    return path


@pytest.fixture(scope="module")
def published():
    """A v3 that has learned both skills."""
    return open_run("zoo:v3-published/seed-16")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_arrays_tables_and_a_page(command, two_seeds, sent, tmp_path, capsys):
    words, arrays, tables = COMMANDS[command]
    main([command, str(two_seeds), *words])
    (place,) = tmp_path.glob(f"results/v3+*-quick/{command}")
    assert {file.stem for file in place.glob("*.nc")} == arrays
    assert written.tables(place) == tables
    page = (place / f"{command}.html").read_text()
    assert "plotly" in page
    assert "does not show" in page
    assert "2 seeds" in capsys.readouterr().out
    for name in arrays:
        assert xr.load_dataset(place / f"{name}.nc", engine="h5netcdf").seed.values.tolist() == [3, 4]
    for name in tables:
        header, *rows = csv.reader((place / f"{name}.csv").open())
        assert rows
        assert all(len(row) == len(header) for row in rows)
    assert len(sent) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS)
def test_two_processes_write_the_same(command, two_seeds, tmp_path):
    words = [command, str(two_seeds), *COMMANDS[command][0]]
    main([*words, "--out", "alone"])
    main([*words, "--out", "two", "--jobs", "2"])
    (alone,), (two,) = (tmp_path.glob(f"{out}/*/{command}") for out in ("alone", "two"))
    expected = {file.name: file.read_bytes() for file in alone.glob("*.nc")}
    assert expected
    assert {file.name: file.read_bytes() for file in two.glob("*.nc")} == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("copy_run")
def test_runs_of_another_task(command, tmp_path, capsys):
    if command == "interchange":
        with pytest.raises(SystemExit, match="2"):
            main([command, "run", "--n", "40"])
        assert "reads runs of permutation-lookup; got a run of copy" in capsys.readouterr().err
        return
    main([command, "run", "--n", "40"])
    (place,) = tmp_path.glob(f"results/*/{command}")
    assert (place / f"{command}.html").exists()


# ---- discover


@pytest.mark.full
def test_the_values_reach_the_answer_through_one_head_and_the_mlp(published):
    """Exchanged values: the same three edges by every search, each as large as the patch of that edge alone."""
    options = discover.Discover(n=64, n_random=20)
    found = discover.measure(published, options)
    for skill, selection, _ in discover._settings(published, options):
        result = found[f"discovery_{skill}"]
        assert result.search.values.tolist() == ["smallest minimal", "greedy", "top n by effect", "top n by EAP-IG"]
        members = {tuple(result.edge.values[inside > 0]) for inside in result.circuit.values}
        (head,) = found["roles"].component.sel(role=["elimination head"]).values
        assert members == {(f"input → {head} v", f"{head} → L0 MLP", "L0 MLP → logits")}
        assert (result.faithfulness >= 0.85).all()
        assert (result.jaccard == 1).all()
        assert (result.sel(measure="faithfulness")["rank"] == 1).all()
        patched = effects(patch_edges(selection.model, selection.pairs, directions=("noising",)))
        np.testing.assert_allclose(result.effect, patched.ratio.squeeze().sel(edge=result.edge), atol=1e-5)


def test_circuits_are_chosen_and_judged_on_different_prompts(published):
    for _, selection, test in discover._settings(published, discover.Discover(n=10)):
        sides = [{tuple(row) for row in setting.pairs.clean.inputs.tolist()} for setting in (selection, test)]
        assert [len(setting.pairs) for setting in (selection, test)] == [5, 5]
        assert sides[0] != sides[1]


@pytest.mark.full
def test_searches_that_cannot_be_made_are_left_out(published):
    options = discover.Discover(n=100, n_random=2, skills=("recall",), metric="accuracy", replacement="mean")
    result = discover.measure(published, replace(options, embeddings="apart"))["discovery_recall"]
    assert result.search.values.tolist() == ["greedy", "top n by effect"]  # 21 edges, and no gradient
    assert result.size_ratio.isnull().all()
    assert result.n_edges.notnull().all()


@pytest.mark.full
def test_a_run_that_tells_nothing_apart_counts_in_no_table(tmp_path):
    """Before training one seed has no circuit, and takes part in nothing."""
    runs = train_seeds(tmp_path / "runs", (0,), **{"recipe.batch_size": 32})
    options = discover.Discover(step=0, n=16, n_random=2)
    result = discover.measure(open_run(runs / "seed-0"), options)["discovery_recall"]
    assert all(values.isnull().all() for values in result.data_vars.values())
    assert result.circuit.shape == (4, 13)


@pytest.mark.thorough
def test_deeper_models_have_no_truth_to_compare_with(tmp_path):
    runs = train_seeds(tmp_path / "runs", (0, 1), **{"model.n_layers": 2, "recipe.batch_size": 32})
    main(["discover", str(runs), "--n", "16", "--n-random", "2", "--target", "0.5", "--metric", "kl"])
    (place,) = tmp_path.glob("results/*/discover")
    assert "more than 16 edges" in (place / "discover.html").read_text()
    header, *rows = csv.reader((place / "circuits.csv").open())
    assert "overlap" not in header
    assert {row[1] for row in rows} == {"greedy", "top n by effect", "top n by EAP-IG"}


@pytest.mark.thorough
def test_circuits_that_stay_are_written_alike_by_one_process_and_by_two(tmp_path):
    """The three edges of the published model stay with other prompts in both seeds."""
    words = ["discover", "zoo:v3-published/seed-16", "zoo:v3-published/seed-17", "--n", "64", "--n-random", "40"]
    words += ["--stability", "--n-draws", "3", "--skills", "recall"]
    main([*words, "--out", "alone"])
    main([*words, "--out", "two", "--jobs", "2"])
    (alone,), (two,) = (tmp_path.glob(f"{out}/*/discover") for out in ("alone", "two"))
    assert {file.name: file.read_bytes() for file in two.glob("*.nc")} == {
        file.name: file.read_bytes() for file in alone.glob("*.nc")
    }
    found = xr.load_dataset(alone / "stability_recall.nc", engine="h5netcdf")
    core = found.sel(change="other prompts").core
    planted = ["input → elimination head v", "elimination head → L0 MLP", "L0 MLP → logits"]
    assert (core.sel(edge=planted) == 1).all()
    assert (found.p_jaccard.sel(change="other prompts") < 0.05).all()
    between = xr.load_dataset(alone / "seeds_recall.nc", engine="h5netcdf")
    assert between.seed.values.tolist() == [16, 17]
    assert between.jaccard > between.by_chance
    assert {"overlap", "core"} <= {file.stem for file in alone.glob("*.csv")}
    page = (alone / "discover.html").read_text()
    assert "In 90 % of circuits stay" in page
    assert "searches share biases" in page


# ---- probe


@pytest.mark.full
def test_one_head_carries_the_slot_and_the_other_the_values(published):
    """And the skills need it there: both controls spare what erasing destroys."""
    options = probe.Probe(n=150, latents=("source_slot", "unused"), sites=("z",))
    found = probe.measure(published, options)
    score, chance = found["probes"].score, found["probes"].chance
    assert score.site.values.tolist() == ["elimination head", "other head"]
    for latent, head, other in (
        ("source_slot", "other head", "elimination head"),
        ("unused", "elimination head", "other head"),
    ):
        assert score.sel(latent=latent, site=head) > 0.95
        assert score.sel(latent=latent, site=other) < chance.sel(latent=latent, site=other) + 0.1
    assert (found["probes"].control_score < 0.7).all()
    lost = found["erased"].sel(latent="unused", site="elimination head", skill="elimination")
    assert lost.clean_accuracy == 1
    assert lost.accuracy < 0.4
    assert min(lost.random_accuracy.mean(), lost.shuffled_accuracy.mean()) > 0.6
    assert found["erased"].accuracy.sel(latent="source_slot", site="elimination head").isnull().all()


def test_latents_unless_asked_for_are_the_answer_and_those_with_one_value(published):
    found = probe.measure(published, probe.Probe(n=20, sites=("resid_mid",), erase=False))
    assert set(found) == {"probes"}
    names = found["probes"].latent.values.tolist()
    assert names == [
        "target",
        "is_repeat",
        "source_slot",
        "recalled",
        "unused",
    ]  # source_pos says what source_slot says
    assert found["probes"].attrs["pos"] == 8


def test_a_number_is_read_by_regression_beside_a_class(published, monkeypatch):
    monitor = PermutationLookup.monitor

    def with_number(self, n, **options):
        batch = monitor(self, n, **options)
        return with_latent(batch, "half", batch.latents["unused"] / 2)

    monkeypatch.setattr(PermutationLookup, "monitor", with_number)
    found = probe.measure(published, probe.Probe(n=100, latents=("half", "unused"), sites=("resid_mid",)))
    assert found["probes"].unit.values.tolist() == ["R²", "accuracy"]
    assert (found["probes"].score > 0.5).all()
    assert found["probes"].chance.sel(latent="half") == 0
    assert found["erased"].accuracy.notnull().all()


def test_no_sequence_is_fitted_and_tested_on(published):
    fit, test = probe._prompts(published, probe.Probe(n=4000, split="train"))
    rows = torch.cat((fit.inputs.unique(dim=0), test.inputs.unique(dim=0)))
    assert 0 < len(fit) < 8000
    assert len(rows.unique(dim=0)) == len(rows)


def test_nothing_is_erased_where_nothing_can_be_read(tmp_path):
    """Heads whose weights are held at zero say the same of every sequence; without an MLP there are fewer sites."""
    runs = train_seeds(
        tmp_path / "runs", (0,), **{"model.attention": False, "model.mlp": False, "recipe.batch_size": 32}
    )
    found = probe.measure(open_run(runs / "seed-0"), probe.Probe(n=20, latents=("unused",)))
    assert found["probes"].site.values.tolist() == ["elimination head", "other head", "L0 resid_post"]
    heads = {"latent": "unused", "site": ["elimination head", "other head"]}
    assert (found["probes"].score == found["probes"].chance).sel(heads).all()
    assert found["erased"].accuracy.sel(heads).isnull().all()


# ---- interchange


@pytest.mark.full
def test_the_heads_are_values_and_match_by_role(published):
    found = interchange.measure(published, interchange.Interchange(n=200, n_pairs=400, n_random=2))
    scores = found["interchange"].score.to_series()
    assert scores["values and match"] > 0.85 > 0.5 > scores["elimination and recall"]
    places = dict(zip(found["interchange"].variable.values, found["interchange"]["place"].values, strict=True))
    assert (places["values"], places["match"]) == ("elimination head", "other head")
    assert (found["untrained"].score < 0.4).all()
    assert found["interchange"].follows > 0.99


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["discover", "runs", "--metric", "logit"], "logit_diff"),
        (["discover", "runs", "--corruption", "scramble"], "exchange_answer"),
        (["discover", "runs", "--corruption", "permute_pairs"], "another --corruption"),
        (["discover", "runs", "--skills", "guessing"], "elimination, recall"),
        (["discover", "runs", "--target", "0"], "--target must be from 0.01 to 1"),
        (["discover", "runs", "--n-random", "0"], "--n-random must be at least 1"),
        (["discover", "runs", "--n", "3"], "--n must be at least 4"),
        (["discover", "runs", "--stability", "--n-draws", "1"], "--n-draws must be at least 2; got 1"),
        (["discover", "runs", "--n-draws", "many"], "many"),
        (["probe", "runs", "--latents", "mood"], "is_repeat"),
        (["probe", "runs", "--latents", "y"], "y[1] to y[5]"),
        (["probe", "runs", "--sites", "pattern"], "take q, k or z"),
        (["probe", "runs", "--pos", "9"], "--pos must be from -9 to 8"),
        (["probe", "runs", "--n", "1"], "at least 2"),
        (["interchange", "runs", "--n-pairs", "0"], "--n-pairs must be at least 1"),
        (["interchange", "runs", "--n-random", "0"], "--n-random must be at least 1"),
        (["interchange", "zoo:v1-quick/seed-16"], "has one head"),
        (["interchange", "runs", "--step", "7"], "60"),
    ],
)
def test_wrong_input_gets_one_line_and_writes_nothing(words, named, refused):
    assert named in refused(words)
