"""A command is one value: its options, whose docstrings are the help, and what it does with them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mnemoscope.core.guests import Registry

SECTIONS = ("train and look", "take models apart", "put claims on trial", "the package")
"""Headings of the overview, in its order."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command behind a word on the command line."""

    options: type
    """A dataclass that inherits from `Options`; its docstring, and those of its fields, are the help."""
    run: Callable[[Any], None]
    """Takes the options."""
    section: str = SECTIONS[-1]
    """The heading that the overview lists it under."""
    earlier: tuple[str, ...] = ()
    """Earlier names, which still work."""
    out_is_file: bool = False
    """True if an option `--out` names a file, False if a directory."""

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return (self.options.__doc__ or "").strip().split("\n")[0]


COMMANDS: Registry[Command] = Registry("command", "commands")
