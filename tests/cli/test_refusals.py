"""What the parser refuses is one line that helps, and so is a place that cannot be written to, before any work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.cli.parse import read_config
from mnemoscope.cli.refusals import option_names
from mnemoscope.core.errors import InputError


def line(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("mnemoscope: ")
    return said.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "--sedes", "3"], ["--sedes, 3", "the nearest: --seeds;", "see mnemoscope train --help"]),
        (["ablate", "zoo", "--imprt", "f"], ["--imprt", "the nearest: --import;"]),
        (["train", "--jobs", "x"], ["--jobs", "'x'"]),
        (["train", "--recipe"], ["'--recipe'"]),
        (["ablate", "zoo", "--split", "all"], ["'all'", "--split", "('train', 'test')"]),
        (["predict"], ["mnemoscope predict", "Run directory", "As the task reads it"]),
        (["list", "presets", "twice"], ["twice"]),
        (["claims", "diff", "one"], ["see mnemoscope claims diff --help"]),
    ],
)
@pytest.mark.parametrize("width", ["40", "200"])
def test_the_parser_refuses_in_one_line(words, named, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    said = line(words, capsys)
    assert all(part in said for part in named), said
    assert not set("│╭╰─") & set(said)


def test_nothing_is_near_an_option_that_is_like_no_other(capsys):
    assert "nearest" not in line(["train", "--wrong", "3"], capsys)


def test_the_names_are_those_that_the_parser_knows(capsys):
    for name, command in commands().items():
        with pytest.raises(SystemExit):
            main([*name.split(), "--help"])
        shown = capsys.readouterr().out
        assert all(option in shown for option in option_names(command.options)), name
    assert "--import" in option_names(commands()["predict"].options)
    assert "--run" not in option_names(commands()["predict"].options)


@pytest.mark.parametrize("command", ["evaluate", "ablate", "train", "claims run", "sweep"])
def test_a_file_is_no_directory_for_results(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("", encoding="utf-8")
    words = {"claims run": ["T18"], "train": []}.get(command, ["nowhere"])
    assert "--out must be a directory; there is a file" in line([*command.split(), *words, "--out", "there"], capsys)
    said = line([*command.split(), *words, "--out", "there/below"], capsys)
    assert "--out there/below cannot be made" in said
    assert list(Path().iterdir()) == [Path("there")]


def test_a_directory_is_no_file_for_a_page(tmp_path, capsys):
    assert "--out must be a file" in line(["report", "nowhere", "--out", str(tmp_path)], capsys)
    assert "is no run directory" in line(["report", "nowhere", "--out", str(tmp_path / "new" / "page.html")], capsys)


@pytest.mark.parametrize("out", ["", "new", "new/deeper"])
def test_a_place_that_is_read_only_is_refused(out, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path)  # root may write anywhere
    assert f"{tmp_path} is read-only" in line(["train", "--out", str(tmp_path / out)], capsys)


def test_numbers_will_do_where_a_file_should_hold_text(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("train: {seeds: 0, recipe: quick, preset: [v1]}")
    assert read_config(file) == {"train": {"seeds": "0", "recipe": "quick", "preset": ("v1",)}}
    file.write_text("train: {seeds: [0]}")
    with pytest.raises(InputError, match=r"train\.seeds"):
        read_config(file)


HEAVY = ("torch", "pandas", "transformer_lens", "transformers", "plotly", "sklearn", "statsmodels", "scipy")


LIGHT = """
train --wrong 3
train --jobs x
train --seeds a-b
train --set widths=3
train --out FILE
train --preset v9
train --preset v3 --recipe slow
trian
predict nowhere 1
ablate zoo:v9
claims run T99 --zoo
claims show T99
claims diff a b
claims list
claims show T14
list cats
list presets
list systems
list tasks
list zoo
list zoo:v1-quick
--complete claims run \n--complete train --preset \n--complete ablate zoo
"""
EACH_IN_A_CHILD = """
import os, sys
from mnemoscope.cli import main
for line in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            main(line.split(" "))
        except SystemExit:
            pass
        sys.stdout.flush()
        os._exit(any(name in sys.modules for name in HEAVY))
    _, status = os.waitpid(child, 0)
    if status:
        print("imports too much:", line, status, file=sys.stderr)
"""


@pytest.mark.full
def test_nothing_is_imported_that_a_command_does_not_need():
    """A refusal or a list would otherwise take ten seconds."""
    lines = LIGHT.replace("FILE", __file__).strip("\n").split("\n")
    code = EACH_IN_A_CHILD.replace("HEAVY", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "imports too much" not in done.stderr, done.stderr


@pytest.mark.parametrize("module", ["mnemoscope", "mnemoscope.cli"])
def test_the_package_is_the_program(module):
    done = subprocess.run([sys.executable, "-m", module, "trian"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("mnemoscope: the command must be one of: ")
