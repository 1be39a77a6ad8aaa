"""Files that derive from a run are compared with their digests: an edit of any is noticed by name."""

import json
import shutil
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.derived import check_files, refuse_edited
from mnemoscope.models.run import create_run, find_runs, finish_run, open_run

SPEC = preset("d4", "quick", 3)


@pytest.fixture
def run(tmp_path):
    """A run that ended at step 20, and whose checkpoints were measured."""
    made = create_run(tmp_path / "runs" / "seed-03", SPEC)
    for step in (10, 20):
        save_checkpoint(made.untrained(), made.checkpoint_path(step), step=step)
    (made.path / "metrics.jsonl").write_text('{"step": 20, "train_loss": 1.0, "test_loss": 1.0}\n')
    finish_run(made, 20)
    made.write_trajectory(xr.Dataset({"loss": ("step", [2.0, 1.0])}, coords={"step": [10, 20]}))
    return made


def state(run, **how):
    return check_files(run.path, run.label, run.spec.seed, **how)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_files_as_they_were_written_are_the_same(run):
    assert state(run, trajectory_weights=True).state == "same"
    assert open_run(run.path).trajectory().identical(run.trajectory())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("metrics.jsonl", '"test_loss": 1.0', '"test_loss": 0.1'),
        ("trajectory.json", "2.0", "0.5"),
        ("run.json", '"torch": "', '"torch": "0.4 was '),
        ("run.json", '"created": "', '"created": "19'),
        ("run.json", '"last_step": 20', '"last_step": 10'),
    ],
)
def test_an_edited_file_is_named_in_one_line(run, name, old, new):
    edit(run.path / name, old, new)
    with pytest.raises(InputError, match=rf"{name} was edited after it was written") as refused:
        refuse_edited([state(run)])
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing_counts_as_edited(run):
    (run.path / "trajectory.json").unlink()
    assert "trajectory.json" in state(run).problem


def test_a_trajectory_names_the_weights_that_it_was_measured_on(run):
    other = create_run(run.path.parent / "seed-04", preset("d4", "quick", 4))
    save_checkpoint(other.untrained(), run.checkpoint_path(10), step=10)
    assert state(run).state == "same"
    assert "trajectory.json" in state(run, trajectory_weights=True).problem


def test_a_run_from_before_digests_is_unverified(run):
    content = json.loads((run.path / "run.json").read_text())
    del content["digests"]
    (run.path / "run.json").write_text(json.dumps(content))
    assert state(run).state == "unverified"


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json"])
def test_a_run_of_the_zoo_and_a_copy_of_it_are_compared_with_the_archive(tmp_path, monkeypatch, name):
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    original = find_runs("zoo:v3-quick")[0]
    shutil.copytree(original.path, tmp_path / "copies" / original.path.name)
    for run in (original, open_run(tmp_path / "copies" / original.path.name)):
        assert state(run).state == "same"
        edit(run.path / name, "0", "1")
        assert f"{name} was edited" in state(run).problem
        assert "its archive" in state(run).problem


def test_a_run_of_its_own_with_the_name_of_one_in_the_zoo_is_not_compared_with_it(tmp_path):
    made = create_run(tmp_path / "seed-16", preset("v3", "quick", 16))
    save_checkpoint(made.untrained(), made.checkpoint_path(10), step=10)
    assert state(made).state == "unverified"
