"""What shells offer: commands, options, values and registered names; and the scripts that ask for it."""

import os
import shutil
import subprocess
import sys

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.cli.commands.completion import candidates
from mnemoscope.cli.options import FORMATS
from mnemoscope.cli.refusals import option_names
from mnemoscope.models import zoo

LABELS = [f"zoo:{label}" for label in zoo.labels()]
V1 = [label for label in LABELS if label.startswith("zoo:v1")]


def test_every_command_and_option_is_offered():
    assert {*candidates([""])} == {*(name.split()[0] for name in commands()), "--help", "--version"}
    for name, command in commands().items():
        words = name.split()
        assert words[-1] in candidates([*words[:-1], ""]), name
        assert {*option_names(command.options), "--help"} <= {*candidates([*words, "-"])}, name


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("cla", ["claims"]),
        ("claims ", ["diff", "list", "run", "show", "new", "export", "import", "validate", "verify"]),
        ("dev ", ["check", "register", "entries", "store", "zoo"]),
        ("dev store v", ["verify"]),
        ("prompts retrieval --questi", ["--questions"]),
        ("train --re", ["--recipe"]),
        ("train --no-t", ["--no-together"]),
        ("ablate --split t", ["train", "test"]),
        ("ablate zoo --figures svg ", list(FORMATS)),
        ("train --preset v3-n", ["v3-no-mlp", "v3-no-attention", "v3-no-positions"]),
        ("train --preset v1 v2", ["v2"]),  # it takes several
        ("train --recipe q", ["quick"]),
        ("train --recipe quick ", []),  # takes one, and there are no arguments
        ("train --out ", []),  # a file
        ("claims show T19", ["T19"]),
        ("claims run T1 noisy", ["noisy-recall"]),
        ("reproduce noi", ["noisy-recall"]),
        ("list ta", ["tasks"]),
        ("ablate zoo:v1", V1),
        ("ablate zoo --latex zoo:v1", V1),
        ("ablate zoo --split test zoo:v1", V1),  # after options too
        ("predict zoo:v1", V1),
        ("predict zoo:v1-quick 1", []),
        ("completion z", ["zsh"]),
        ("no-such-command ", []),
    ],
)
def test_a_word_is_completed(line, offered):
    assert candidates(line.split(" ")) == offered


def test_all_claims_and_systems_are_offered():
    claims = [CLAIMS.get(id) for id in CLAIMS.names()]
    ours = {claim.id for claim in claims} | {claim.system for claim in claims}
    assert {*candidates(["claims", "run", ""])} == ours


ASK = """
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_mnemoscope
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def program(tmp_path):
    """The program as it is installed, and the script for a shell beside it."""
    file = tmp_path / "mnemoscope"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mnemoscope "$@"\n')
    file.chmod(0o755)
    return file


def script(shell, program, capsys):
    main(["completion", shell])
    file = program.with_suffix(f".{shell}")
    file.write_text(capsys.readouterr().out)
    return file


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("words", "offered"), [(["ablate", "zoo:v1"], V1), (["train", "--out", ""], [])])
def test_bash_completes(words, offered, program, capsys):
    command = ["bash", "-c", ASK, str(script("bash", program, capsys)), str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("line", "offered"), [("ablate zoo:v1", V1), ("claims ", ["diff", "list"])])
def test_fish_completes(line, offered, program, capsys):
    ask = f"source {script('fish', program, capsys)}; complete -C 'mnemoscope {line}'"
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["fish", "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert {*offered} <= {*done.stdout.split()}


ZSH = """
compadd() { print -l -- ${(P)2} }
_files() { print FILES }
words=("$@")
CURRENT=$#
source "$0"
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.parametrize(("words", "offered"), [(["ablate", "zoo:v1"], V1), (["train", "--out", ""], ["FILES"])])
def test_zsh_completes(words, offered, program, capsys):
    command = ["zsh", "-fc", ZSH, str(script("zsh", program, capsys)), str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered


def test_other_shells_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["completion", "tcsh"])
    assert end.value.code == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
