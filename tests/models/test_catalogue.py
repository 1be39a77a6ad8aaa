"""Runs in any state are listed, with what can be known of them."""

import json
import shutil

import pytest

from mnemoscope.models.catalogue import catalogue


@pytest.fixture
def copy(tiny, tmp_path):
    shutil.copytree(tiny.path, tmp_path / "runs" / "one")
    return tmp_path / "runs" / "one"


def only(path):
    (listed,) = catalogue(path).runs
    return listed


def test_a_finished_run(copy, tiny):
    listed = only(copy.parent)
    assert (listed.state, listed.reached, listed.last_step, listed.seed) == ("finished", 60, 60, 0)
    assert listed.last("test_loss") == float(tiny.metrics().test_loss[-1])
    assert listed.last("absent") is None
    assert listed.progress["step"] == tiny.metrics().step.values.tolist()


def test_an_interrupted_run(copy):
    (copy / "done").unlink()
    (copy / "checkpoints" / "00000060.safetensors").unlink()
    file = copy / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:5]) + '{"step": 50, "trai')
    listed = only(copy)
    assert (listed.state, listed.reached, listed.last_step) == ("interrupted", 40, 60)


@pytest.mark.parametrize("logged", [None, "", '{"step": 0, "train'])
def test_a_run_that_logged_nothing_yet(logged, copy):
    (copy / "done").unlink()
    shutil.rmtree(copy / "checkpoints")
    (copy / "metrics.jsonl").unlink()
    if logged is not None:
        (copy / "metrics.jsonl").write_text(logged)
    listed = only(copy)
    assert (listed.state, listed.reached, listed.progress) == ("interrupted", 0, {})


def test_a_run_that_stopped_early(copy):
    content = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**content, "last_step": 30}))
    assert (only(copy).state, only(copy).last_step) == ("stopped early", 30)


def test_damaged_metrics_are_a_problem_of_that_run(copy):
    (copy / "metrics.jsonl").write_text("{}\n")
    assert only(copy).state == "not readable"
    assert "line 1 lacks step" in only(copy).problem


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"preset": 3, "seed": 0}', "\udcff"])
def test_what_cannot_be_opened_is_said(damage, copy):
    (copy / "run.json").write_text(damage, errors="surrogateescape")
    found = catalogue(copy.parent)
    assert found.runs == []
    assert list(found.unreadable) == [copy]


def test_there_may_be_nothing(tmp_path):
    found = catalogue(tmp_path)
    assert (found.runs, found.unreadable) == ([], {})
