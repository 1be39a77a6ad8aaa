"""A run of another task than that of the package."""

import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.core.presets import PRESETS, SYSTEMS, preset_spec
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
        yield train(preset_spec("copy-small", "quick", 0, changes=changes), tmp_path / "run")
