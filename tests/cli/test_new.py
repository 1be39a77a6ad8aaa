"""`mnemoscope new`: the files that it writes work as they are, and nothing is overwritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnemoscope.cli import main

TRIED = {
    "task": ["train", "--preset", "my-task", "--set", "recipe.n_steps=4", "recipe.warmup_steps=1"],
    "claim": ["claims", "show", "my-claim"],
    "analysis": ["my-analysis", "zoo:d4-quick/seed-16", "--n", "20"],
}
"""A short command with each."""


@pytest.mark.drawn(1)
@pytest.mark.thorough
@pytest.mark.parametrize("kind", TRIED)
def test_what_is_written_works_with_its_test_and_its_command(kind, tmp_path, capsys):
    main(["new", kind, f"my-{kind}", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert f"pytest {tmp_path / f'test_my_{kind}.py'}" in printed
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [".", os.environ.get("PYTHONPATH")]))}
    for words in (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_my_{kind}.py"],
        ["-m", "mnemoscope.cli", *TRIED[kind], "--import", f"my_{kind}.py"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["new", "claim", "one-head"])
    text = Path("one_head.py").read_text(encoding="utf-8")
    assert 'id="one-head"' in text
    with pytest.raises(SystemExit):
        main(["new", "task", "one-head"])
    assert "one_head.py exists; choose another name" in capsys.readouterr().err
    assert Path("one_head.py").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["Head", "a_b", "1st", "class", "a--b"])
def test_a_name_that_is_none_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["new", "task", name])
    assert "NAME must be of small letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
