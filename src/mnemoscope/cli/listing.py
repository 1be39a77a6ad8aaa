"""All commands: modules of `cli.commands`, records of analyses, and those of guests under the same names.

The list imports all of these, so they import slow modules inside functions.
"""

import importlib
import pkgutil
from collections.abc import Sequence

from mnemoscope.cli.analysis import record_command
from mnemoscope.cli.command import COMMANDS, SECTIONS, Command
from mnemoscope.records.record import records


def commands() -> dict[str, Command]:
    """All commands by name, in the order of the overview."""
    package = importlib.import_module("mnemoscope.cli.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found = {name: COMMANDS.get(name) for name in COMMANDS.names()}
    found |= {name: record_command(record) for name, record in records().items()}
    sections = dict.fromkeys((*SECTIONS, *(command.section for command in found.values())))
    return {name: found[name] for section in sections for name in found if found[name].section == section}


def split_command(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The command that a line begins with, which may be two words, and the words after it."""
    for name, command in commands().items():
        for called in (name, *command.earlier):
            n = len(called.split())
            if list(words[:n]) == called.split():
                return name, list(words[n:])
    return None


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
