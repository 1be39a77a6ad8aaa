"""A run of another task than that of the package, and commands that are refused."""

import importlib.util
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.cli import main
from mnemoscope.core.presets import PRESETS, SYSTEMS, preset
from mnemoscope.core.specification import TASKS
from mnemoscope.training.loop import train

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "copy_task.py"


@pytest.fixture
def copy_run(tmp_path):
    """A short run, in the directory `run`, of the example task of the pages: one skill, no slots, one head."""
    TASKS.names()
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        spec = importlib.util.spec_from_file_location("example_copy", EXAMPLE)
        module = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {spec.name: module}):
            spec.loader.exec_module(module)
        changes = {"recipe.n_steps": 300, "recipe.metrics_every": 100}
        yield train(preset("copy-small", "quick", 0, changes=changes), tmp_path / "run")


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
