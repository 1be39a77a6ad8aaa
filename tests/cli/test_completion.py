"""The script for a shell names every command, and bash completes with it."""

import shutil
import subprocess

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.cli.refusals import option_names


def script(shell: str, capsys) -> str:
    with pytest.raises(SystemExit) as end:
        main(["completion", shell])
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_named(shell, capsys):
    text = script(shell, capsys)
    for name, command in commands().items():
        assert all(f"'{word}'" in text for word in name.split()), name
        assert all(option in text for option in option_names(command.options)), name


ASK = """
source "$0"
COMP_WORDS=(mnemoscope "$@")
COMP_CWORD=$#
_tyro_mnemoscope
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["cla"], {"claims"}),
        (["claims", ""], {"diff", "list", "register", "run", "show"}),
        (["prompts", ""], {"retrieval"}),
        (["prompts", "retrieval", "--questi"], {"--questions"}),
        (["train", "--re"], {"--recipe"}),
        (["ablate", "--split", "t"], {"train", "test"}),
    ],
)
def test_bash_completes(words, offered, capsys, tmp_path):
    file = tmp_path / "mnemoscope"
    file.write_text(script("bash", capsys))
    done = subprocess.run(["bash", "-c", ASK, str(file), *words], capture_output=True, text=True, check=True)
    found = {word for word in done.stdout.split() if not word.startswith("-") or words[-1].startswith("-")}
    assert found == offered


def test_other_shells_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["completion", "tcsh"])
    assert end.value.code == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
