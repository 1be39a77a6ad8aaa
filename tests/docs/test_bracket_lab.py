"""The example of a complete package: its parts, and the commands over it as somebody else's installation has them."""

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.entry import read_entry
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS, SYSTEMS
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import TASKS
from mnemoscope.models.subjects import Subject
from mnemoscope.records import RECORDS, MeasuredRuns
from tests.support import MINUTES, seeded

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PACKAGE = EXAMPLES / "bracket_lab"


@pytest.fixture(scope="module")
def lab():
    """Imports a module of the package; what it registers is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as forgotten:
        patched.syspath_prepend(PACKAGE)
        for registry in (TASKS, PRESETS, SYSTEMS, CLAIMS, RECORDS):
            registry.names()  # the built-in ones are there before
            forgotten.enter_context(mock.patch.dict(registry._items))
        yield lambda part: importlib.import_module(f"bracket_lab.{part}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bracket_lab"]:
        del sys.modules[name]


def matches(word: list[int], n_types: int) -> list[int]:
    """For every bracket of a word, the position of the innermost one that is open after it; -1: none is."""
    open_ones, found = [], []
    for place, token in enumerate(word):
        if token < n_types:
            open_ones.append(place)
        else:
            assert word[open_ones.pop()] == token - n_types
        found.append(open_ones[-1] if open_ones else -1)
    assert not open_ones
    return found


def test_words_are_all_there_and_match_a_slow_reading(lab):
    task = lab("tasks").MatchingBrackets(n_types=2, n_pairs=3, max_depth=2).for_seed(1)
    assert isinstance(task, Task)
    both = [task.enumerate(split=split) for split in ("train", "test")]
    words = [word for batch in both for word in torch.cat((batch.inputs, batch.targets[:, -1:]), 1).tolist()]
    assert len({tuple(word) for word in words}) == len(words) == 4 * 2**3  # 5 shapes, one of them of depth 3
    found = [row for batch in both for row in batch.latents["match"].tolist()]
    assert found == [matches(word, 2)[:-1] for word in words]


def test_the_counterfactual_changes_the_last_answer_and_one_input(lab):
    task = lab("tasks").MatchingBrackets().for_seed(1)
    clean = task.sample(200, split="test", generator=seeded())
    changed = task.corrupt(clean, kind="change_type", generator=seeded(1))
    differs = (clean.targets != changed.targets) & clean.scored
    assert differs[:, -1].all()
    assert not differs[:, :-1].any()
    assert ((clean.inputs != changed.inputs).sum(1) == 1).all()


def test_the_exact_predictors(lab):
    task = lab("tasks").MatchingBrackets()
    batch = task.parse("([]{})()")
    right = {name: task.reference(batch, name)[batch.scored].argmax(-1) for name in task.references}
    assert "".join(task.symbols[token] for token in right["matching"]) == "]})" + ")"
    assert "".join(task.symbols[token] for token in right["latest"]) == "]}}" + ")"


@pytest.mark.parametrize("text", ["", "(]", ")", "<", "([)", "()()()()("])
def test_texts_that_are_no_words_are_refused(lab, text):
    with pytest.raises(InputError, match="bracket"):
        lab("tasks").MatchingBrackets().parse(text)


def test_the_planted_model_closes_every_bracket_and_needs_its_attention(lab):
    claims = lab("claims")
    task = claims.SHALLOW.for_seed(3)
    batch = task.enumerate(split="train")
    answers = claims.by_hand()(batch.inputs).argmax(-1)
    assert torch.equal(answers[batch.scored], batch.targets[batch.scored])
    found = claims.measure(Subject(model=claims.by_hand(), task=task, seed=3))
    assert found["gate"] == 1
    assert found["effect"] > claims.CLAIM.margin


def test_the_analysis_finds_the_planted_head(lab):
    claims = lab("claims")
    task = claims.SHALLOW.for_seed(0)
    found = lab("analyses").match_attention(claims.by_hand(), task, task.enumerate(split="test"))
    torch.testing.assert_close(torch.tensor(found.share.values[0, 0]), torch.ones(2).double())
    torch.testing.assert_close(torch.tensor(found.share.values[0, 1]), torch.tensor(found.even.values).double())


def test_the_record_shows_the_planted_head(lab):
    claims, record = lab("claims"), lab("records")
    task = claims.SHALLOW.for_seed(0)
    found = lab("analyses").match_attention(claims.by_hand(), task, task.enumerate(split="test"))
    heads = found.sel(layer=0).rename(head="role").assign_coords(role=["the head", "L0H1"])
    results = {"match_attention": heads.expand_dims(seed=[0])}
    measured = MeasuredRuns(results=results, options=record.BracketAttention(), runs=[])
    [table] = record.tables(measured)
    assert table.header[1:] == tuple(found.skill.values)
    assert table.rows[0] == ["the head", "1.000", "1.000"]
    assert [row[0] for row in table.rows] == ["the head", "L0H1", "all positions alike"]
    assert len(record.figures(measured)) == 1
    said = record.finding(measured)
    assert all(f"{skill} the head (1.00)" in said for skill in found.skill.values)


def mnemoscope(*words: str, where: Path, path: tuple[Path, ...] = ()) -> str:
    """Run the command line in a process of its own and return what it prints."""
    places = os.pathsep.join(map(str, (ROOT / "src", *path)))
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    command = [sys.executable, "-m", "mnemoscope.cli", *words]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


FEW = ("--set", "recipe.n_steps=20", "recipe.warmup_steps=0", "recipe.batch_size=64")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which the package is installed."""
    place = tmp_path_factory.mktemp("bracket-lab")
    shutil.copytree(PACKAGE, place / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-deps"]
    pip += ["--no-build-isolation", "--no-index", "--target", str(place / "site"), str(place / "source")]
    subprocess.run(pip, check=True)
    return place / "site"


@MINUTES
@pytest.mark.slow
def test_every_command_works_for_the_installed_package(site, tmp_path):
    def run(*words: str) -> str:
        return mnemoscope(*words, where=tmp_path, path=(site,))

    for kind, name in (("tasks", "matching-brackets"), ("presets", "matching-brackets"), ("systems", "bracket-lab")):
        assert name in run("list", kind)
    run("train", "--preset", "matching-brackets", "--seeds", "0-1", "--jobs", "2", *FEW)
    [first, _] = sorted(path.parent for path in tmp_path.glob("runs/*/*/done"))
    assert "farther" in run("evaluate", "runs")
    assert "([{" in run("predict", str(first), "([{}])")
    run("predict", str(first), "([{}])", "--out", "view.html")
    for command in ("ablate", "patch", "bracket-attention"):
        assert "farther" in run(command, "runs", "--n", "64")
        assert len(list(tmp_path.glob(f"results/*/{command}/{command}.html"))) == 1
    run("report", "runs")
    page = (tmp_path / "report.html").read_text()
    assert "Matching brackets" in page
    assert "Removing one component" in page
    assert "brackets-look-back" in run("claims", "list", "bracket-lab")
    run("claims", "run", "brackets-look-back", "--runs", "runs", "--jobs", "1")
    assert (tmp_path / "verdicts" / "verdicts.json").exists()


@MINUTES
@pytest.mark.slow
def test_the_claim_of_the_installed_package_is_judged_as_its_entry_of_the_registry_says(site, tmp_path):
    """Its models are trained here, after it was registered; then it stands in the atlas beside ours."""

    def run(*words: str) -> str:
        return mnemoscope(*words, where=tmp_path, path=(site,))

    [file] = (site / "bracket_lab" / "registry").glob("*.json")
    entry = read_entry(file)
    assert entry.verdict is not None
    run("train", "--preset", "matching-brackets", "--seeds", f"{entry.seeds[0]}-{entry.seeds[-1]}", "--jobs", "2")
    run("claims", "run", "bracket-lab", "--runs", "runs", "--jobs", "2", "--no-sensitivity", "--no-emergence")
    [record] = json.loads((tmp_path / "verdicts" / "verdicts.json").read_text())
    assert (record["standing"]["status"], record["departures"]) == ("before its runs", [])
    assert (record["outcome"], record["n"]) == (entry.verdict.outcome, entry.verdict.n)
    assert record["confirmed"] == entry.verdict.confirmed
    assert entry.verdict.outcome in run("claims", "list", "bracket-lab")
    run("claims", "validate", str(file.parent))
    run("atlas", "--out", "atlas")
    assert any(entry.id in page.read_text() for page in (tmp_path / "atlas").rglob("*.html"))


@pytest.mark.slow
def test_commands_work_for_a_task_in_one_file(tmp_path):
    def run(*words: str) -> str:
        return mnemoscope(*words, "--import", str(EXAMPLES / "copy_task.py"), where=tmp_path)

    run("train", "--preset", "copy-small", "--seeds", "0-1", "--jobs", "2", *FEW)
    [first, _] = sorted(path.parent for path in tmp_path.glob("runs/*/*/done"))
    assert "copying" in run("evaluate", "runs")
    run("predict", str(first), "1 2 3 0 1 2")
    assert "copying" in run("ablate", "runs", "--n", "32")
    run("report", "runs")
    assert "Removing one component" in (tmp_path / "report.html").read_text()
