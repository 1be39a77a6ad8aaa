"""`mnemoscope compare`: two configurations, two seeds, two checkpoints; of any task; and what is refused."""

import csv
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import small_spec

VECTORS = RunSpec(
    task=Retrieval(n_chains=2, n_steps=1),
    model=ModelSpec(d_model=16, n_heads=2, act_fn="gelu", positions=False),
    recipe=Recipe(n_steps=4, batch_size=16, metrics_every=2),
    seed=0,
)


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def one_head(trained_once):
    """The directory of two seeds, 3 and 4, of a model with one head and no MLP."""
    changes = {"model.n_heads": 1, "model.mlp": False}
    runs = [trained_once(f"one-head/seed-{seed}", small_spec("v3", seed=seed, changes=changes)) for seed in (3, 4)]
    return runs[0].path.parent


def compare(*words, n=32):
    main(["compare", *map(str, words), "--n", str(n)])
    (page,) = Path("results").glob("*/compare/*/compare.html")
    return page


def rows(file):
    header, *found = csv.reader(file.open())
    assert all(len(row) == len(header) for row in found)
    return [dict(zip(header, row, strict=True)) for row in found]


@pytest.mark.full
def test_two_configurations(two_seeds, one_head, sent, capsys):
    page = compare(two_seeds, one_head)
    assert len(sent) == 4
    assert {file.name for file in page.parent.glob("*.nc")} == {
        "skills.nc",
        "ablation.nc",
        "predictions.nc",
        "attention.nc",
    }
    fields = {row["field"] for row in rows(page.parent / "specification.csv")}
    assert fields == {"preset", "model.n_heads", "model.mlp"}
    tree = xr.open_datatree(page.parent / "skills.nc", engine="h5netcdf")
    both = tree["second"].accuracy - tree["first"].accuracy
    assert tree["difference"].accuracy.sel(summary="mean").values == pytest.approx(both.mean("seed").values)
    removed = rows(page.parent / "ablation.csv")
    alone = {row["removed"] for row in removed if row["difference"] == "–"}
    assert alone == {"other head", "L0 MLP"}
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 seeds that both have, in pairs" in printed
    html = page.read_text()
    (finding,) = re.findall('<p class="finding">(.*?)</p>', html)
    assert finding in printed
    assert "elimination" in finding.split("Learned, better than a constant guess")[0]
    assert html.count("CircuitsVis.render(") == 2
    assert "H2: other head" in html
    assert [name in html for name in ("Specification", "Skills", "Predictions", "Attention")] == [True] * 4


@pytest.mark.full
def test_two_checkpoints_of_a_run(tiny):
    page = compare(f"{tiny.path}@30", tiny.path, "--sequence", "3 3 4 5 2 1 1 4 3")
    (row,) = rows(page.parent / "specification.csv")
    assert (row["field"], row["step 30"], row["last step"]) == ("step", "30", "60")
    assert "The sequence 3 3 4 5 2 1 1 4 3, seed 0" in page.read_text()
    tree = xr.open_datatree(page.parent / "skills.nc", engine="h5netcdf")
    assert float(tree["difference"].loss.sel(summary="mean").isel(skill=0)) != 0


@pytest.mark.full
def test_equal_models_differ_in_nothing(two_seeds, tmp_path, capsys):
    shutil.copytree(two_seeds, tmp_path / "copy")
    page = compare(two_seeds, "copy")
    for name in ("skills", "ablation"):
        difference = xr.open_datatree(page.parent / f"{name}.nc", engine="h5netcdf")["difference"].to_dataset()
        assert (abs(difference.to_array()) == 0).all()
    assert rows(page.parent / "specification.csv") == []
    assert rows(page.parent / "places.csv") == []
    assert "the specifications are the same" in " ".join(capsys.readouterr().out.split())


@pytest.mark.full
def test_seeds_of_one_configuration_have_splits_of_their_own(two_seeds):
    page = compare(two_seeds / "seed-3", two_seeds / "seed-4")
    html = page.read_text()
    assert "each seed is asked what its own split holds" in html
    assert "One seed each" in html
    assert [row["field"] for row in rows(page.parent / "specification.csv")] == ["seed"]


@pytest.mark.full
def test_the_first_task_is_asked(two_seeds, trained_once):
    other = trained_once("v1-seed-3", small_spec("v1", seed=3))
    html = unescape(compare(two_seeds / "seed-3", other.path).read_text())
    assert "Both are asked sequences of the first one's task (task.repeat_ratio=" in html


@pytest.mark.usefixtures("copy_run")
def test_runs_of_another_task(tmp_path):
    assert compare("run@0", "run").exists()


def test_vectors_have_errors_attention_and_ablation(trained_once):
    runs = [trained_once(f"compared-vectors-{seed}", replace(VECTORS, seed=seed)) for seed in (0, 1)]
    page = compare(*(run.path for run in runs), n=8)
    assert {file.name for file in page.parent.glob("*.nc")} == {"skills.nc", "ablation.nc", "attention.nc"}
    assert "squared error" in page.read_text()
    assert 'id="predictions"' not in page.read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["runs", "runs"], "are the same"),
        (["runs@60", "runs/run"], "are the same"),
        (["runs@7", "runs"], "no checkpoint of step 7; it has 0, 10, 30, 60"),
        (["runs", "nowhere"], "nowhere is no run directory"),
        (["runs", "four"], "6 and 5 tokens"),
        (["runs", "birth"], "permutation-lookup and in-context-bigrams"),
        (["both", "runs"], "holds 2 configurations"),
        (["runs@30", "runs", "--n", "1"], "at least 2"),
        (["runs@30", "runs", "--sequence", "3 9"], "1, 2, 3, 4, 5"),
        (["runs@30", "runs", "--kinds", "median"], "median"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(words, named, refused, four_values, trained_once, tmp_path):
    birth = trained_once("birth-short", small_spec("birth-1-layer", changes={"recipe.batch_size": 4}))
    shutil.copytree(four_values.path, tmp_path / "four")
    shutil.copytree(birth.path, tmp_path / "birth")
    shutil.copytree(tmp_path / "runs", tmp_path / "both" / "one")
    shutil.copytree(four_values.path, tmp_path / "both" / "two")
    assert named in refused(["compare", *words])
