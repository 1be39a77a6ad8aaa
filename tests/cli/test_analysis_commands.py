"""The commands that take models apart: arrays, tables and a page for runs of any task, and what they refuse."""

import csv
import re
from html import unescape
from types import SimpleNamespace

import pytest
import xarray as xr

from mnemoscope.analyses.stacking import concatenate
from mnemoscope.cli import main
from mnemoscope.models.constructed import induction
from mnemoscope.records import patch
from mnemoscope.records.record import MeasuredRuns
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from tests.cli import written

COMMANDS = {
    "patch": ({"patch_elimination", "patch_recall"}, {"logit_diff"}),
    "ablate": ({"ablation", "dissociation"}, {"accuracy", "costs", "dissociation"}),
    "circuits": ({"qk", "ov", "heads", "patterns", "removal"}, {"summary"}),
    "neurons": (
        {"neurons", "selectivity", "roles", "agreement", "shares", "top"},
        {"by-role", "top-k", "most-needed", "memories"},
    ),
    "truncate": ({"truncation"}, {"probability", "accuracy"}),
    "learning-coefficient": ({"learning_coefficient", "skills"}, {"last", "checkpoints", "onsets", "order"}),
    "heads": (
        {"heads", "joint", "shares", "scores", "paths", "selection"},
        {"mechanisms", "together", "without-path"},
    ),
}
WORDS = {
    "patch": ["--n", "20", "--kind", "z", "--over", "layer", "head", "pos"],
    "ablate": ["--n", "64"],
    "circuits": ["--n", "64"],
    "neurons": ["--n", "64", "--sampled"],
    "truncate": ["--n", "64", "--ranks", "0", "8"],
    "learning-coefficient": ["--n", "12", "--n-chains", "2", "--burn-in", "20", "--draws", "10"],
    "heads": ["--n", "64"],
}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_arrays_tables_and_a_page(command, two_seeds, sent, tmp_path, capsys):
    main([command, str(two_seeds), *WORDS[command]])
    arrays, tables = COMMANDS[command]
    (place,) = tmp_path.glob(f"results/v3+*-quick/{command}")
    assert {file.stem for file in place.glob("*.nc")} == arrays | {"gate"}
    assert written.tables(place) == tables
    assert "plotly" in (place / f"{command}.html").read_text()
    out = capsys.readouterr().out
    assert "2 seeds" in out
    (finding,) = re.findall('<p class="finding">(.+?)</p>', (place / f"{command}.html").read_text())
    assert unescape(finding)[:40] in " ".join(out.split())
    for name in arrays:
        tree = xr.open_datatree(place / f"{name}.nc", engine="h5netcdf")
        seeds = tree["seed"].values.tolist() if "seed" in tree.coords else sorted(tree.children)
        assert seeds in ([3, 4], ["seed-3", "seed-4"])
    for name in tables:
        header, *rows = csv.reader((place / f"{name}.csv").open())
        assert all(len(row) == len(header) for row in rows)
    assert len(sent) == 2


@pytest.mark.drawn(2)
@pytest.mark.thorough
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_two_processes_write_the_same(command, two_seeds, tmp_path):
    words = [command, str(two_seeds), *WORDS[command]]
    main([*words, "--out", "alone"])
    main([*words, "--out", "two", "--jobs", "2"])
    (alone,), (two,) = (tmp_path.glob(f"{out}/*/{command}") for out in ("alone", "two"))
    expected = {file.name: file.read_bytes() for file in alone.glob("*.nc")}
    assert expected
    assert {file.name: file.read_bytes() for file in two.glob("*.nc")} == expected


def test_patch_keeps_the_prompts_that_test_a_skill(two_seeds, tmp_path):
    """Of permutation lookup as many of every seed, so that none is padded."""
    main(["patch", str(two_seeds), "--n", "20", "--out", "out"])
    for skill in ("elimination", "recall"):
        (file,) = tmp_path.glob(f"out/*/patch/patch_{skill}.nc")
        found = xr.open_dataset(file)
        assert found.prompt.values.tolist() == list(range(20))
        assert found.clean.notnull().all()


def test_patch_pads_where_seeds_have_different_numbers_of_prompts():
    task = InContextBigrams(length=24, triggers="fixed")
    run = SimpleNamespace(hooked=lambda step: induction(task.d_vocab, task.n_ctx))
    options = patch.Patch(n=12, over=("layer",), skills=("in_context",))
    found = {}
    for seed in (3, 4):
        run.spec = SimpleNamespace(task=task, seed=seed)
        found[seed] = patch.measure(run, options)["patch_in_context"]
    measured = MeasuredRuns(results={"patch_in_context": concatenate("seed", found)}, options=options, runs=[])
    (shown,) = patch.finish("birth", measured).values()
    numbers = shown.clean.notnull().all("metric").sum("prompt").values
    assert numbers[0] != numbers[1]
    assert shown.sizes["prompt"] == max(numbers)
    for seed, number in zip((3, 4), numbers, strict=True):
        tested = shown.sel(seed=seed).isel(prompt=slice(number))
        assert tested.clean.notnull().all()
        assert tested.value.notnull().all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["subsets", "positions", "paths"])
def test_what_else_can_be_ablated(what, two_seeds, tmp_path):
    main(["ablate", str(two_seeds), "--n", "32", "--what", what, "--out", "out"])
    (file,) = tmp_path.glob("out/*/ablate/ablation.nc")
    names = xr.open_dataset(file).role.values.tolist()
    expected = {
        "subsets": ("elimination head + other head + L0 MLP", 7),
        "positions": ("other head pos x5", 27),
        "paths": ("elimination head y2→x5", 90),
    }
    assert expected[what][0] in names
    assert len(names) == expected[what][1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("copy_run")
def test_runs_of_another_task(command, tmp_path):
    few = {"learning-coefficient": ("--n-chains", "2", "--burn-in", "20", "--draws", "20")}
    main([command, "run", "--n", "40", *few.get(command, ())])
    (place,) = tmp_path.glob(f"results/*/{command}")
    assert (place / f"{command}.html").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["patch", "runs", "--over", "head"], "pos"),
        (["patch", "runs", "--corruption", "scramble"], "exchange_answer"),
        (["patch", "runs", "--corruption", "permute_pairs"], "another --corruption"),
        (["patch", "runs", "--metrics", "logit"], "logit_diff"),
        (["patch", "runs", "--n", "1"], "at least 2"),
        (["patch", "runs", "--skills", "guessing"], "elimination, recall"),
        (["patch", "runs", "--corruption", "move_repeat"], "sequences with a repeat"),
        (["patch", "nowhere"], "mnemoscope train"),
        (["ablate", "runs", "--step", "7"], "60"),
        (["circuits", "runs", "--n", "0"], "at least 2"),
        (["neurons", "runs", "--layer", "1"], "must be 0"),
        (["neurons", "runs", "--top", "0"], "at least 1"),
        (["heads", "runs", "--tolerance", "-1"], "at least 0"),
        (["truncate", "runs", "--n", "1"], "at least 2"),
        (["truncate", "runs", "--weights", "L0 W_out + W_gate"], "b_out; got 'W_gate'"),
        (["truncate", "runs", "--weights", "blocks.1.mlp.W_out"], "no parameter blocks.1.mlp.W_out"),
        (["truncate", "runs", "--ranks", "99"], "from 0 to 32; got 99"),
    ],
)
def test_wrong_input_gets_one_line_and_writes_nothing(words, named, refused):
    assert named in refused(words)
