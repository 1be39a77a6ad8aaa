"""Two runs that the commands share, a run of another task than that of the package, and commands that are refused."""

import importlib.util
import pickle
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.cli import main
from mnemoscope.core.presets import PRESETS, SYSTEMS, preset
from mnemoscope.core.specification import TASKS
from mnemoscope.models.run import open_run
from mnemoscope.run import executor
from tests.support import small_spec

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "copy_task.py"


@pytest.fixture(scope="session")
def two_seeds(trained_once):
    """The directory of two seeds, 3 and 4, of a v3 after 60 steps."""
    runs = [trained_once(f"two-seeds/seed-{seed}", small_spec("v3", seed=seed)) for seed in (3, 4)]
    return runs[0].path.parent


@pytest.fixture
def sent(monkeypatch):
    """Without workers, what they would be sent and would send back is pickled all the same; how often that was."""
    times = []

    def here(runs, analyse):
        for run in runs:
            times.append(1)
            function, argument = pickle.loads(pickle.dumps((analyse, run)))
            yield pickle.loads(pickle.dumps(function(argument)))

    monkeypatch.setattr(executor, "_analyse_here", here)
    return times


@pytest.fixture
def copy_run(tmp_path, trained_once):
    """A short run, in the directory `run`, of the example task of the pages: one skill, no slots, one head."""
    for registry in (TASKS, PRESETS, SYSTEMS):
        registry.names()  # those of the package are there before
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        spec = importlib.util.spec_from_file_location("example_copy", EXAMPLE)
        module = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {spec.name: module}):
            spec.loader.exec_module(module)
        changes = {"recipe.n_steps": 300, "recipe.metrics_every": 100}
        trained = trained_once("copy", preset("copy-small", "quick", 0, changes=changes))
        shutil.copytree(trained.path, tmp_path / "run")
        yield open_run(tmp_path / "run")


@pytest.fixture
def refused(tiny, tmp_path, capsys):
    """A function that has a command refused beside a run in `runs`, with one line and no results: that line."""
    shutil.copytree(tiny.path, tmp_path / "runs" / "run")

    def line(words):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert len(error.strip().splitlines()) == 1
        assert error.startswith("mnemoscope: ")
        assert not (tmp_path / "results").exists()
        return error

    return line
