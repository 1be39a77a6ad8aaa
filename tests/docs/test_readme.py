"""What the README shows is run."""

import re
import shlex
from pathlib import Path

import plotly.graph_objects as go
import pytest

from mnemoscope.cli.options import COMMANDS, split_command
from mnemoscope.cli.parse import parse

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.S)
    assert code is not None
    small = '{"recipe.n_steps": 20, "recipe.warmup_steps": 2, "recipe.batch_size": 64}'
    shown = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    exec(code[1].replace("seed=0)", f"seed=0, changes={small})"), {})
    assert len(shown) == 1
    assert (tmp_path / "runs" / "v3" / "done").exists()


LINES = [line.split("#")[0].strip() for line in re.findall(r"^mnemoscope .*$", README, re.M)]


@pytest.mark.parametrize("line", LINES)
def test_the_commands_are_understood(line):
    command, words = split_command(shlex.split(line)[1:])
    assert isinstance(parse(command, words), COMMANDS[command])


def test_there_are_commands_and_a_picture():
    assert len(LINES) >= 7
    assert (Path(__file__).parents[2] / "docs" / "images" / "heads.png").stat().st_size > 10_000
