"""`mnemoscope completion`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options

_BASH = """
_mnemoscope() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
complete -o default -F _mnemoscope mnemoscope
"""
_ZSH = """
#compdef mnemoscope
local -a offered
offered=(${(f)"$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
if (( $#offered )); then
    compadd -a offered
else
    _files
fi
"""
_FISH = """
function __mnemoscope_complete
    set -l before (commandline -opc)
    set -l typed (commandline -ct)
    $before[1] --complete $before[2..-1] "$typed" 2>/dev/null
end
complete -c mnemoscope -a '(__mnemoscope_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion(Options):
    """Print a script that lets a shell complete commands, options and names; `--help` says where it goes.

    Presets, recipes, systems, claims and runs of the zoo are completed as they are installed when the key is pressed.

    bash: mnemoscope completion bash > ~/.local/share/bash-completion/completions/mnemoscope
    zsh:  mnemoscope completion zsh > DIR/_mnemoscope, where DIR is in $fpath
    fish: mnemoscope completion fish > ~/.config/fish/completions/mnemoscope.fish
    """

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """For which shell."""


def run(options: Completion) -> None:
    """Print the script, which asks `mnemoscope --complete`."""
    print(_SCRIPTS[options.shell].strip())


COMMANDS.add("completion", Command(options=Completion, run=run, section="the package"))
