"""A command is one value: its options, whose docstrings are the help, and what it does with them.

Commands come from the modules of `cli.commands`, from records of analyses, and from guests under the same names. The
list imports all of these, so they import slow modules inside functions.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnemoscope.core.guests import Registry

PATHS = {
    "understand a trained model": "mnemoscope explore zoo:v3-quick/seed-16",
    "study a model of your own or a language model": "mnemoscope train --seeds 0",
    "write an analysis": "mnemoscope new analysis my-analysis",
    "test a claim": "mnemoscope claims list",
}
"""The four paths of users, each with a command to begin with."""
SECTIONS = (*PATHS, "the package", "for maintainers")
"""Headings of the overview, in its order."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command behind a word on the command line."""

    options: type
    """A dataclass that inherits from `Options`; its docstring, and those of its fields, are the help."""
    run: Callable[[Any], None]
    """Takes the options."""
    section: str = "the package"
    """The heading that the overview lists it under."""
    earlier: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Earlier names, which still work for one release, with a warning; each with the defaults that it gives options."""
    out_is_file: bool = False
    """True if an option `--out` names a file, False if a directory."""

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return (self.options.__doc__ or "").strip().split("\n")[0]


COMMANDS: Registry[Command] = Registry("command", "commands")


def commands() -> dict[str, Command]:
    """All commands by name, in the order of the overview."""
    from mnemoscope.cli.analysis import record_command
    from mnemoscope.records.record import records

    package = importlib.import_module("mnemoscope.cli.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found = {name: COMMANDS.get(name) for name in sorted(COMMANDS.names(), key=lambda name: name.split()[0])}
    found |= {name: record_command(record) for name, record in records().items()}
    sections = dict.fromkeys((*SECTIONS, *(command.section for command in found.values())))
    return {name: found[name] for section in sections for name in found if found[name].section == section}


def split_command(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The command that a line begins with, which may be several words or an earlier name, and the words after it."""
    for name, command in commands().items():
        for called in (name, *command.earlier):
            n = len(called.split())
            if list(words[:n]) == called.split():
                return name, list(words[n:])
    return None


def paths() -> str:
    """The text of `mnemoscope` alone."""
    lines = ["Train small transformers on memory tasks, take them apart, put claims about them on trial.", ""]
    for path, command in PATHS.items():
        lines += [f"{path}:", f"  {command}"]
    return "\n".join([*lines, "", "mnemoscope --help lists all commands; mnemoscope COMMAND --help its options."])


def overview() -> str:
    """The text of `mnemoscope --help`."""
    found = commands()
    lines = [
        "usage: mnemoscope COMMAND ... (mnemoscope COMMAND --help for its options)",
        "",
        "Train small transformers on memory tasks, take them apart, put claims about them on trial.",
    ]
    width = max(12, *map(len, found))
    for section in dict.fromkeys(command.section for command in found.values()):
        members = [(name, command) for name, command in found.items() if command.section == section]
        lines += ["", f"{section}:", *(f"  {name:<{width}} {command.summary}" for name, command in members)]
    return "\n".join(lines)
