"""The command line: parse, call, print. Nothing heavy is imported before a command is known.

A package that brings its own command needs the names of the stub.
"""

import atexit
import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)

atexit.register(gc.freeze)  # looking for garbage in a process that ends takes a second


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; wrong input gives one line on standard error and exit code 2, an interrupt one and 130."""
    from mnemoscope.cli.process import note_interrupts, print_everywhere, silence_libraries
    from mnemoscope.core.errors import InputError

    words = list(sys.argv[1:] if arguments is None else arguments)
    with note_interrupts() as noted, silence_libraries(), print_everywhere():
        try:
            _run(words)
        except Exception as error:
            if noted:  # libraries make other errors of an interrupt while they are imported
                _interrupted()
            if not isinstance(error, InputError | OSError):
                raise
            print(f"mnemoscope: {error}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            _interrupted()


def _run(words: list[str]) -> None:
    from mnemoscope.cli.command import commands, overview, paths, split_command
    from mnemoscope.core.errors import InputError, one_of

    if null := [word for word in words if "\0" in word]:
        raise InputError(f"the words of a command must hold no null byte, which no file name has; got {null[0]!r}")
    if words[:1] == ["--version"]:
        from mnemoscope.core.version import __version__

        print(__version__)
        return
    if words[:1] == ["--complete"]:
        from mnemoscope.cli.commands.completion import candidates

        print("\n".join(candidates(words[1:])))
        return
    from mnemoscope.cli.parse import execute, import_guests

    words = import_guests(words)
    if not words:
        print(paths())
    elif words[0] in ("-h", "--help"):
        print(overview())
    elif (found := split_command(words)) is None:
        group = [name for name in commands() if name.startswith(f"{words[0]} ")]
        one_of("the command", " ".join(words[: 2 if group else 1]), group or commands())
    else:
        name, rest = found
        called = " ".join(words[: len(words) - len(rest)])
        if called != name:
            print(f"mnemoscope: {called} is now {name}; the old name goes in the next release", file=sys.stderr)
        execute(name, rest, called=called)


def _interrupted() -> NoReturn:
    print("mnemoscope: interrupted; the same command continues", file=sys.stderr)
    sys.exit(130)
