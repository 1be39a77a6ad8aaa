"""`mnemoscope completion`, and the candidates of a shell for a word that is being typed.

Shells call `mnemoscope --complete` with the words of the line. Names come from `cli.catalogue`, and nothing heavy is
imported. *Does not know* names of guests that `--import` brings, nor the recipes of a preset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command, commands, split_command
from mnemoscope.cli.options import CommandOptions, RegisteredNames

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
class Completion(CommandOptions):
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


# ---- candidates


def candidates(words: Sequence[str]) -> list[str]:
    """The candidates for the last word, which may be empty or begun; none where files may stand."""
    *before, typed = words or [""]
    called = split_command(before)
    if called is None:
        n = len(before)
        offered: Iterable[str] = [name.split()[n] for name in commands() if name.split()[:n] == before]
        offered = [*offered, *(() if before else ("--help", "--version"))]
    else:
        offered = _next_words(commands()[called[0]].options, called[1], typed)
    return [word for word in dict.fromkeys(offered) if word.startswith(typed)]


def _next_words(options: type, given: Sequence[str], typed: str) -> Iterable[str]:
    """The words that may follow those given to a command."""
    from mnemoscope.cli.refusals import option_names

    hints = get_type_hints(options, include_extras=True)
    if typed.startswith("-"):
        switches = [f"--no-{name}".replace("_", "-") for name, hint in hints.items() if _strip_marks(hint) is bool]
        return ("--help", *option_names(options), *switches)
    return _option_values(hint) if (hint := _expected_hint(options, hints, given)) is not None else ()


def _expected_hint(options: type, hints: Mapping[str, Any], given: Sequence[str]) -> Any | None:
    """The annotation of the option or the argument that the next word belongs to; None: there is none."""
    from mnemoscope.cli.refusals import is_positional

    opened = [place for place, word in enumerate(given) if word.startswith("--")]
    if opened:
        called, n_values = given[opened[-1]], len(given) - opened[-1] - 1
        hint = hints.get(called.removeprefix("--").replace("-", "_"))
        takes = hint is not None and _strip_marks(hint) is not bool
        if takes and (n_values == 0 or _takes_several(hint)):
            return hint
        n_before = opened[0] + max(0, n_values - takes)
    else:
        n_before = len(given)
    places = [hints[field.name] for field in dataclasses.fields(options) if is_positional(hints[field.name])]
    if n_before < len(places):
        return places[n_before]
    return places[-1] if places and _takes_several(places[-1]) else None


def _strip_marks(hint: Any) -> Any:
    """An annotation without its marks."""
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _takes_several(hint: Any) -> bool:
    return get_origin(_strip_marks(hint)) is tuple


def _option_values(hint: Any) -> Iterable[str]:
    """The words that an option takes, as far as these are known."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, RegisteredNames):
            yield from (*mark.also, *_registered_names(mark.kind))
    yield from _choices(hint)


def _choices(hint: Any) -> Iterable[str]:
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for inner in get_args(hint):
            yield from _choices(inner)


def _registered_names(kind: str) -> Iterable[str]:
    from mnemoscope.cli.catalogue import catalogue_entries
    from mnemoscope.models import zoo
    from mnemoscope.records.record import records

    if kind == "presets" or kind == "systems":
        return catalogue_entries(kind)
    if kind == "recipes":
        return (name for preset in catalogue_entries("presets").values() for name in preset["recipes"])
    if kind == "claims":
        claims = catalogue_entries("claims")
        return (*claims, *(claim["system"] for claim in claims.values()))
    if kind == "analyses":
        return records()
    assert kind == "runs", kind
    return (zoo.WORD, *(f"{zoo.WORD}:{label}" for label in zoo.labels()))
