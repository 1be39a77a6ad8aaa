"""The command line: parse, call, print. Nothing heavy is imported before a command is known."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; wrong input gives one line on standard error and exit code 2."""
    from mnemoscope.cli.options import COMMANDS, overview, split_command
    from mnemoscope.core.errors import InputError

    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return
    try:
        if words[0] == "--version":
            from importlib.metadata import version

            print(version("mnemoscope"))
        elif (found := split_command(words)) is None:
            raise InputError(f"the command must be one of: {', '.join(COMMANDS)}; got {' '.join(words[:2])!r}")
        else:
            from mnemoscope.cli.parse import execute

            execute(*found)
    except (InputError, OSError) as error:
        print(f"mnemoscope: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mnemoscope: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
