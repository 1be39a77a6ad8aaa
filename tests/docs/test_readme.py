"""What the README shows is run."""

import re
import shlex
from pathlib import Path

import mnemoscope.claims.testing.verdicts
import plotly.graph_objects as go
import pytest

import mnemoscope.claims.testing.cases  # noqa: F401 (pytester forgets what its sessions import)
from mnemoscope.cli.command import commands, split_command
from mnemoscope.cli.parse import parse
from mnemoscope.systems.tiny_recall.constructed import dissociated
from tests.claims.testing.planted import N_VALUES, plant

README = (Path(__file__).parents[2] / "README.md").read_text()


EXAMPLE, CLAIM = re.findall(r"```python\n(.*?)```", README, re.S)


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = '{"recipe.n_steps": 20, "recipe.warmup_steps": 2, "recipe.batch_size": 64}'
    shown = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    exec(EXAMPLE.replace("seed=0)", f"seed=0, changes={small})"), {})
    assert len(shown) == 1
    assert (tmp_path / "runs" / "v3-quick" / "seed-00" / "done").exists()


def test_the_claim_runs_as_a_unit_test(pytester, tmp_path):
    plant(tmp_path, {0: dissociated(N_VALUES)})
    pytester.makepyfile(CLAIM)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--mnemoscope-runs={tmp_path}")
    result.assert_outcomes(passed=1)
    assert len(CLAIM.splitlines()) < 20


LINES = [line.split("#")[0].strip() for line in re.findall(r"^mnemoscope .*$", README, re.M)]


@pytest.mark.parametrize("line", LINES)
def test_the_commands_are_understood(line):
    command, words = split_command(shlex.split(line)[1:])
    assert isinstance(parse(command, words), commands()[command].options)


def test_there_are_commands_and_a_picture():
    assert len(LINES) >= 7
    assert (Path(__file__).parents[2] / "docs" / "images" / "heads.png").stat().st_size > 10_000
