"""`mnemoscope completion`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from mnemoscope.cli.command import COMMANDS, Command, commands
from mnemoscope.cli.options import Options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion(Options):
    """Print a script that lets a shell complete commands and options; `--help` says where it goes.

    bash: mnemoscope completion bash > ~/.local/share/bash-completion/completions/mnemoscope
    zsh:  mnemoscope completion zsh > DIR/_mnemoscope, where DIR is in $fpath
    fish: mnemoscope completion fish > ~/.config/fish/completions/mnemoscope.fish
    """

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """For which shell."""


def run(options: Completion) -> None:
    """Print the script for all commands, those of guests too."""
    words = ["--tyro-print-completion", options.shell]
    markers = (OmitSubcommandPrefixes, OmitArgPrefixes)
    tyro.cli(_as_one(commands()), prog="mnemoscope", args=words, config=markers)  # prints, and exits with 0


def _as_one(found: Mapping[str, Command]) -> Any:
    """All commands as one type for the parser; those of two words are below the first."""
    groups: dict[str, dict[str, Command]] = {}
    for name, command in found.items():
        first, _, second = name.partition(" ")
        groups.setdefault(first, {})[second] = command
    alternatives = []
    for first, group in groups.items():
        if "" in group:
            alternatives.append(_alternative(first, group[""].options, group[""].summary))
            continue
        below = [_alternative(second, command.options, command.summary) for second, command in group.items()]
        if len(group) == 1:  # the parser leaves out the name where there is nothing to choose from
            below.append(_alternative("--help", Options, "show this help message and exit"))
        both = dataclasses.make_dataclass(first.capitalize(), [("command", reduce(or_, below))])
        alternatives.append(_alternative(first, both, ", ".join(group)))
    return reduce(or_, alternatives)


def _alternative(name: str, options: type, summary: str) -> Any:
    return Annotated[options, subcommand(name, description=summary)]


COMMANDS.add("completion", Command(options=Completion, run=run, section="the package"))
