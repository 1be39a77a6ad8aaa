"""`mnemoscope new`: the files that it writes work as they are, and nothing is overwritten."""

import json
import os
import subprocess
import sys
import tomllib
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


@pytest.mark.thorough
def test_a_package_with_a_claim_is_tested_shown_registered_and_judged(tmp_path, capsys):
    main(["claims", "new", "my-claim", "--out", str(tmp_path)])
    assert "mnemoscope dev register my-claim" in capsys.readouterr().out
    project = tmp_path / "my-claim"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [".", os.environ.get("PYTHONPATH")]))}
    claim = ("my-claim", "--import", "my_claim")
    for words in (
        ["pytest", "-q", "-p", "no:cacheprovider", "test_my_claim.py"],
        ["mnemoscope.cli", "claims", "show", *claim],
        ["mnemoscope.cli", "dev", "register", *claim],
        ["mnemoscope.cli", "claims", "run", *claim, "--runs", "zoo:v1-quick", "--no-sensitivity", "--no-emergence"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    registered = json.loads((project / "my_claim" / "registered.json").read_text(encoding="utf-8"))
    assert registered["my-claim"]["seeds"] == list(range(100, 116))
    [record] = json.loads((project / "verdicts" / "verdicts.json").read_text(encoding="utf-8"))
    assert record["standing"]["status"] == "not dated"  # the runs of the zoo were there before, and have no date here
    assert not record["confirmed"]
    assert record["n"] >= 16


def test_a_package_names_what_is_to_be_filled_in_and_is_a_guest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["claims", "new", "half-of-it"])
    project = Path("half-of-it")
    for file in ("claims.py", "claims.yaml", "presets.py"):
        assert "FILL IN" in (project / "half_of_it" / file).read_text(encoding="utf-8")
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["entry-points"] == {"mnemoscope.systems": {"half-of-it": "half_of_it"}}
    assert settings["tool"]["setuptools"]["packages"] == ["half_of_it"]


def test_a_claim_in_one_file_is_that_of_new_claim(tmp_path):
    main(["claims", "new", "one-head", "--file", "--out", str(tmp_path / "a")])
    main(["new", "claim", "one-head", "--out", str(tmp_path / "b")])
    names = ["one_head.py", "one_head.yaml", "test_one_head.py"]
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_text(encoding="utf-8") == (tmp_path / "b" / name).read_text(
            encoding="utf-8"
        )


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
