"""The command line: parse, call, print. Nothing heavy is imported before a command is known.

The names of the stub are what a package needs that brings a command of its own.
"""

import sys
from collections.abc import Sequence

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; wrong input gives one line on standard error and exit code 2."""
    from mnemoscope.cli.command import commands, overview, split_command
    from mnemoscope.core.errors import InputError

    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--version"]:
        from importlib.metadata import version

        print(version("mnemoscope"))
        return
    try:
        from mnemoscope.cli.parse import execute, invite_guests

        words = invite_guests(words)
        if not words or words[0] in ("-h", "--help"):
            print(overview())
        elif (found := split_command(words)) is None:
            raise InputError(f"the command must be one of: {', '.join(commands())}; got {' '.join(words[:2])!r}")
        else:
            execute(*found)
    except (InputError, OSError) as error:
        print(f"mnemoscope: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mnemoscope: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
