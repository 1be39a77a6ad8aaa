"""Runs in any state are run, with what can be known of them."""

import json
import shutil

import pytest

from mnemoscope.models.files import hold_directory
from mnemoscope.models.glance import summarise_runs


@pytest.fixture
def copy(tiny, tmp_path):
    shutil.copytree(tiny.path, tmp_path / "runs" / "one")
    return tmp_path / "runs" / "one"


def only(path):
    ((run,), unreadable) = summarise_runs(path, checked=True)
    assert unreadable == {}
    return run


def test_a_finished_run(copy, tiny):
    run = only(copy.parent)
    assert (run.state, run.reached, run.last_step, run.seed) == ("finished", 60, 60, 0)
    assert run.last("test_loss") == float(tiny.metrics().test_loss[-1])
    assert run.last("absent") is None
    assert run.progress["step"] == tiny.metrics().step.values.tolist()


def test_an_interrupted_run(copy):
    (copy / "done").unlink()
    (copy / "checkpoints" / "00000060.safetensors").unlink()
    file = copy / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:5]) + '{"step": 50, "trai')
    run = only(copy)
    assert (run.state, run.reached, run.last_step) == ("interrupted", 40, 60)


def test_a_run_in_training_holds_its_directory(copy):
    (copy / "done").unlink()
    with hold_directory(copy):
        assert only(copy).state == "training"
    assert only(copy).state == "interrupted"
    (copy / ".lock").touch()  # what a process leaves that was killed
    assert only(copy).state == "interrupted"


@pytest.mark.parametrize("logged", [None, "", '{"step": 0, "train'])
def test_a_run_that_logged_nothing_yet(logged, copy):
    (copy / "done").unlink()
    shutil.rmtree(copy / "checkpoints")
    (copy / "metrics.jsonl").unlink()
    if logged is not None:
        (copy / "metrics.jsonl").write_text(logged)
    run = only(copy)
    assert (run.state, run.reached, run.progress) == ("interrupted", 0, {})


def test_a_run_that_stopped_early(copy):
    content = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**content, "last_step": 30}))
    assert (only(copy).state, only(copy).last_step) == ("stopped early", 30)


def test_damaged_metrics_are_a_problem_of_that_run(copy):
    (copy / "metrics.jsonl").write_text("{}\n")
    assert only(copy).state == "not readable"
    assert "line 1 lacks step" in only(copy).problem


HALF = '{"preset": "v3", "seed": 0, "recipe": {"name": "quick", "n_steps": 60}}'
"""Enough for a glance, and no specification."""


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"preset": 3, "seed": 0}', HALF, "\udcff"])
def test_what_cannot_be_opened_is_said(damage, copy):
    (copy / "run.json").write_text(damage, errors="surrogateescape")
    for checked in (True, False) if damage != HALF else (True,):
        found, unreadable = summarise_runs(copy.parent, checked=checked)
        assert found == []
        assert list(unreadable) == [copy]


def test_there_may_be_nothing(tmp_path):
    assert summarise_runs(tmp_path) == ([], {})
