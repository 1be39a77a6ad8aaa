"""Every command as a user types it, and wrong input: one line, exit code 2, nothing written."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints
from unittest import mock

import pytest
import xarray as xr

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli import main, trials
from mnemoscope.cli.command import PATHS, SECTIONS, commands, overview, split_command
from mnemoscope.cli.parse import default_system, parse
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.models.run import find_runs

COMMANDS = commands()
SMALL = (
    "task.n_values=4",
    "recipe.n_steps=40",
    "recipe.warmup_steps=5",
    "recipe.batch_size=64",
    "recipe.metrics_every=20",
)
VERDICTS = ("verdicts", "verdicts-fresh")
SEQUENCE = "3 3 4 5 2 1 1 4 3"


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(tiny, tmp_path) -> str:
    shutil.copytree(tiny.path, tmp_path / "runs" / "run")
    return "runs"


@pytest.fixture
def few(four_values, tmp_path) -> str:
    shutil.copytree(four_values.path, tmp_path / "runs" / "run")
    return "runs"


def written(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*")}


def test_help_names_every_command_and_loads_nothing_heavy(capsys):
    main(["--help"])
    assert capsys.readouterr().out.strip() == overview()
    assert all(name in overview() for name in COMMANDS)
    heavy = "import sys; from mnemoscope.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, check=False).returncode == 0


def test_alone_it_prints_four_paths_with_a_command_each(capsys):
    """A user who types the name alone would not know where to begin."""
    main([])
    out = capsys.readouterr().out
    for path, command in PATHS.items():
        assert f"{path}:\n  {command}\n" in out
        name, words = split_command(command.split()[1:])
        assert parse(name, words)
        assert COMMANDS[name].section in (path, "test a claim"), name
    assert "mnemoscope --help" in out
    assert [section for section in SECTIONS if f"\n{section}:" in overview()] == [*SECTIONS]
    heavy = "import sys; from mnemoscope.cli import main; main([]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, check=False).returncode == 0


def test_what_is_for_maintainers_is_a_group_of_its_own_and_old_words_go_on_with_a_warning(capsys):
    """Scripts of users with the old words would break, or never learn the new ones."""
    ours = [name for name, command in COMMANDS.items() if command.section == "for maintainers"]
    assert {*ours} == {name for name in COMMANDS if name.startswith("dev ")}
    for old, new in (("zoo", "dev zoo"), ("store list", "dev store list"), ("claims register", "dev register")):
        assert split_command([*old.split(), "x"]) == split_command([*new.split(), "x"]) == (new, ["x"])
    assert split_command(["claims", "check"]) == ("dev check", [])
    said = []
    for words in ("store verify nowhere", "dev store verify nowhere"):
        with pytest.raises(SystemExit):
            main(words.split())
        said.append(capsys.readouterr().err.splitlines())
    (warning, refusal), alone = said
    assert warning == "mnemoscope: store verify is now dev store verify; the old name goes in the next release"
    assert alone == [refusal]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_holds_its_docstrings(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert " ".join((COMMANDS[command].options.__doc__ or "").split()) in text


@pytest.mark.full
def test_train_with_clamps_and_look_with_and_without_them(tmp_path):
    (tmp_path / "clamps.yaml").write_text("train: {preset: [v3], clamp: [L0H1=zero from 20], out: runs}\n")
    main(["train", "--config", "clamps.yaml", "--set", *SMALL])
    main(["train", "--clamp", "L0H1=zero from 20", "--clamp", "L0 W_in=rank 3", "--out", "both", "--set", *SMALL])
    ((run,), (both,)) = find_runs("runs"), find_runs("both")
    assert list(map(str, run.spec.recipe.clamps)) == ["L0H1=zero from 20"]
    assert list(map(str, both.spec.recipe.clamps)) == ["L0H1=zero from 20", "L0 W_in=rank 3"]
    assert "clamped_train_loss" in run.metrics()
    for words in ([], ["--clamped"]):
        main(["ablate", "runs", "--out", "tables", "--n", "64", *words])
    places = [tmp_path / "tables" / f"{run.label}{end}" / "ablate" / "ablation.nc" for end in ("", "-clamped")]
    free, clamped = map(xr.open_dataset, places)
    assert not free.equals(clamped)


def test_train_then_everything_else(tmp_path, capsys):
    main(["train", "--preset", "v1", "--seeds", "0,1", "--out", "runs", "--set", *SMALL])
    runs = find_runs(tmp_path / "runs")
    assert [run.spec.seed for run in runs] == [0, 1]
    assert runs[0].label.startswith("v1+")
    before = {run.path: (run.path / "done").stat().st_mtime_ns for run in runs}
    main(["train", "--preset", "v1", "--seeds", "0,1", "--out", "runs", "--set", *SMALL])
    assert before == {run.path: (run.path / "done").stat().st_mtime_ns for run in runs}
    main(["evaluate", "runs", "--out", "tables"])
    main(["ablate", "runs", "--out", "tables", "--n", "64"])
    main(["list", "runs"])
    main(["report", "runs", "--out", "report.html"])
    label = runs[0].label
    assert xr.open_dataset(tmp_path / "tables" / label / "evaluation.nc").sizes["seed"] == 2
    rows = list(csv.reader((tmp_path / "tables" / label / "ablate" / "accuracy.csv").open()))
    assert rows[0][0] == "removed"
    assert "CircuitsVis.render" in (tmp_path / "report.html").read_text()
    assert "finished" in capsys.readouterr().out


def test_predict_prints_bars_with_marks(runs, capsys):
    main(["predict", f"{runs}/run", SEQUENCE])
    out = capsys.readouterr().out
    assert out.count("\nslot ") == 5
    assert "✓ target" in out
    assert out.count("✕ used") == 0 + 1 + 2 + 3 + 3
    assert "slot 5: x = 3, a repeat of slot 1; used y: 1, 3, 4, 5; exact: 3, by recall" in out
    (answer,) = [line for line in out.splitlines() if "↩ y of slot 1" in line]
    assert answer.split()[0] == "3"
    assert "✕" not in answer
    assert "█" in out


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("predict RUN SEQUENCE --out page.html", "page.html"),
        ("view RUN SEQUENCE", "view.html"),
        ("view RUN SEQUENCE --out mine.html", "mine.html"),
        ("view RUN SEQUENCE --config file.yaml", "of-file.html"),
    ],
)
def test_predict_writes_a_page_and_so_does_view_its_earlier_name(runs, tmp_path, words, page, capsys):
    """A script that calls `view` would find no page, or not where it looks for it."""
    Path("file.yaml").write_text("view: {out: of-file.html}", encoding="utf-8")
    given = {"RUN": f"{runs}/run", "SEQUENCE": SEQUENCE}
    main([*(given.get(word, word) for word in words.split()), "--step", "30"])
    assert "CircuitsVis.render" in (tmp_path / page).read_text()
    assert [path.name for path in tmp_path.glob("*.html")] == [page]
    assert ("view is now predict" in capsys.readouterr().err) == words.startswith("view")


def test_list(capsys):
    for what, name in (("tasks", "permutation-lookup"), ("presets", "d64h1"), ("systems", "tiny-recall")):
        main(["list", what])
        assert name in capsys.readouterr().out


def test_a_configuration_gives_defaults_and_words_win(tmp_path):
    words = ", ".join(f'"{word}"' for word in SMALL)
    (tmp_path / "config.yaml").write_text(f"train: {{preset: [v1], seeds: 0-1, out: here, set: [{words}]}}\n")
    main(["train", "--config", "config.yaml", "--seeds", "3"])
    assert [run.spec.seed for run in find_runs(tmp_path / "here")] == [3]


def test_the_experiment_fits_the_commands():
    config = Path(__file__).parents[2] / "experiments" / "2026-tiny-recall" / "config.yaml"
    need_a_word = {"list", "dev zoo", "sweep", "compare", "completion", "export", "hookcheck", "new"}
    need_a_word |= {"claims import", "claims new", "claims validate"}
    for command in set(COMMANDS) - need_a_word:
        parse(command, ["--config", str(config)])
    assert parse("train", ["--config", str(config), "--seeds", "7"]).seeds == "7"
    assert parse("train", ["--config", str(config)]).preset == ("v1", "v3", "d16h1", "d16h2", "d64h1")


def test_what_is_not_named_is_what_an_installed_system_declares(tmp_path):
    main(["train", "--set", *SMALL])
    assert [run.spec.preset.partition("+")[0] for run in find_runs(tmp_path / "runs")] == ["v3"]
    assert default_system() == ("tiny-recall", "v3")
    undeclared = {name: replace(SYSTEMS.get(name), default=None) for name in SYSTEMS.names()}
    with mock.patch.dict(SYSTEMS._items, undeclared), pytest.raises(InputError, match="name a preset or a system"):
        default_system()


def test_a_device_that_is_not_there_shows_no_progress(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--device", "cuda:99"])
    assert capsys.readouterr().out == ""


@pytest.mark.full
@pytest.mark.parametrize("words", [["report", "runs"], ["report", "runs", "--jobs", "2"], ["list", "runs"]])
def test_damaged_metrics_are_one_line(words, few, tmp_path, capsys):
    shutil.copytree(tmp_path / few / "run", tmp_path / few / "other")
    spec = (tmp_path / few / "other" / "run.json").read_text().replace('"seed": 0', '"seed": 1', 1)
    (tmp_path / few / "other" / "run.json").write_text(spec)
    file = tmp_path / few / "run" / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    before = written(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "mnemoscope: runs/run/metrics.jsonl is damaged: line 7 is cut short or not JSON; restore the file, or delete "
        "the run directory and train again\n"
    )
    assert written(tmp_path) == before


@pytest.mark.full
def test_the_cut_last_line_of_an_unfinished_run_is_left_out(few, tmp_path, capsys):
    (tmp_path / few / "run" / "done").unlink()
    file = tmp_path / few / "run" / "metrics.jsonl"
    loss = json.loads(file.read_text().splitlines()[-2])["train_loss"]
    file.write_bytes(file.read_bytes()[:-9])
    main(["list", few])
    assert f"{loss:.4f}" in capsys.readouterr().out
    main(["report", few])
    assert (tmp_path / "report.html").exists()


WITH_JOBS = [name for name, command in COMMANDS.items() if "jobs" in get_type_hints(command.options)]


@pytest.mark.parametrize("command", WITH_JOBS)
def test_every_command_explains_and_refuses_numbers_of_jobs_alike(command, capsys):
    n_words = {"train": 0, "reproduce": 0, "claims run": 0, "methods": 0, "compare": 2}.get(command, 1)
    where = ["nowhere"] * n_words
    with pytest.raises(SystemExit) as end:
        main([*command.split(), *where, "--jobs", "-1"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "mnemoscope: jobs must be from 1 to 1024, or 0 for one process per core; got -1\n"
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Worker processes, of one thread each; 0: one per core." in text
    assert not list(Path().iterdir())


@pytest.mark.thorough
def test_no_jobs_are_one_per_core(tmp_path):
    main(["train", "--preset", "v1", "--seeds", "0,1", "--jobs", "0", "--set", *SMALL])
    main(["evaluate", "runs", "--jobs", "0", "--out", "tables"])
    (table,) = (tmp_path / "tables").glob("*/evaluation.nc")
    assert xr.open_dataset(table).sizes["seed"] == 2


@pytest.mark.slow
def test_reproduce_ends_with_verdicts_over_the_zoo_and_over_the_new_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trials, "claims_named", lambda _: [CLAIMS.get(name) for name in ("T7", "T18")])
    main(["reproduce", "tiny-recall", "--seeds", "0", "--out", "out"])
    out = capsys.readouterr().out
    assert "What was learned" in out
    assert out.index("of the runs just trained") < out.index("over the zoo")
    assert (tmp_path / "out" / "report.html").exists()
    assert {run.label for run in find_runs(tmp_path / "out" / "runs")} == {"v3-quick"}
    zoo, fresh = (json.loads((tmp_path / f"out/{name}/verdicts.json").read_text()) for name in VERDICTS)
    assert [verdict["id"] for verdict in zoo] == ["T7", "T18"]
    assert zoo[0]["n"] == 16
    assert zoo[0]["outcome"] != "NOT_APPLICABLE"
    assert [(verdict["id"], verdict["outcome"]) for verdict in fresh] == [("T7", "NOT_APPLICABLE")]
    main(["reproduce", "tiny-recall", "--seeds", "0", "--out", "out"])
    assert "100.0%" not in capsys.readouterr().out.split("beside")[0]  # nothing was trained again


@pytest.mark.thorough
def test_reproduce_shows_the_first_seed_of_every_configuration_before_it_trains_the_others(capsys, monkeypatch):
    monkeypatch.setattr(trials, "claims_named", lambda _: [])
    small = tuple((name, json.loads(value)) for name, _, value in (change.partition("=") for change in SMALL))
    system = SYSTEMS.get("tiny-recall")
    quick = tuple(replace(part, changes=small) for part in system.quick)
    monkeypatch.setitem(SYSTEMS._items, "tiny-recall", replace(system, quick=quick))
    words = ["reproduce", "tiny-recall", "--seeds", "5-7", "--jobs", "1", "--out", "out"]
    main(words)
    first, _, rest = capsys.readouterr().out.partition("2 other runs to train")
    assert "seed-05" in first
    assert "seed-06" not in first
    assert first.index("seed-05") < first.index("First look, one seed each: What was learned")
    assert "wrote out/report.html" in first, "whoever waits has a picture before most models are trained"
    assert "seed-05" not in rest
    assert "seed-07" in rest
    assert "3/3" in rest.partition("What was learned")[2] or "0/3" in rest.partition("What was learned")[2]
    main(words)
    again = capsys.readouterr().out
    assert "First look" not in again
    assert "seed-0" not in again
    assert again.splitlines()[-9:] == rest.splitlines()[-9:]


@pytest.mark.full
def test_reproduce_shows_what_was_followed_of_every_seed_and_of_the_first_ones_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trials, "claims_named", lambda _: [])
    small = {"task.n_subjects": 4, "task.n_relations": 3, "task.n_noise": 5, "task.length": 6}
    short = {"recipe.n_steps": 20, "recipe.warmup_steps": 5, "recipe.batch_size": 32, "recipe.metrics_every": 10}
    short["recipe.checkpoint_steps"] = (0, 10)
    system = SYSTEMS.get("factual-recall")
    part = replace(system.quick[0], presets=("facts-linear",), changes=tuple({**small, **short}.items()))
    monkeypatch.setitem(SYSTEMS._items, "factual-recall", replace(system, quick=(part,)))
    words = ["reproduce", "factual-recall", "--seeds", "5-6", "--jobs", "1", "--out", "out"]
    main(words)
    plan = "factual-recall: trains 2 of 2 models (40 steps; about a minute with --jobs 1), then makes tables, a report"
    assert capsys.readouterr().out.startswith(plan)
    assert "Not tracked yet" not in (tmp_path / "out" / "report.html").read_text()
    (file,) = (tmp_path / "out" / "arrays").rglob("trajectory.nc")
    assert xr.open_dataset(file).seed.values.tolist() == [5, 6]
    main(words)
    assert capsys.readouterr().out.startswith("factual-recall: all 2 models are trained; ")
