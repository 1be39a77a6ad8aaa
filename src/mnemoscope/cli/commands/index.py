"""`mnemoscope index`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions


@dataclass(frozen=True, kw_only=True)
class Index(CommandOptions):
    """One page on all runs and results in a directory, to filter and to sort, with links to every page and file."""

    directory: Positional[Path] = Path()
    """Runs, results or both; results that lie next to it come along."""
    out: Path | None = None
    """The page; none: index.html in the directory."""


def run(options: Index) -> None:
    """Look through the directory and write the page."""
    from mnemoscope.cli.output import console
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.overview import NAME, check_place, overview_page

    out = options.directory / NAME if options.out is None else options.out
    page = overview_page(options.directory, out)
    check_place(out)
    write_atomically(out, page.html().encode())
    console.print(f"wrote {out}", highlight=False)


def refresh(directory: Path) -> None:
    """Write index.html in a directory that a command has filled, unless a page of another kind is there."""
    from mnemoscope.cli.output import console
    from mnemoscope.core.errors import InputError
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.overview import NAME, check_place, overview_page

    try:
        check_place(directory / NAME)
    except InputError:
        console.print(f"{directory / NAME} is a page of another kind and left as it is", highlight=False)
        return
    write_atomically(directory / NAME, overview_page(directory, directory / NAME, around=False).html().encode())
    console.print(f"wrote {directory / NAME}, which links to all of it", highlight=False)


COMMANDS.add("index", Command(options=Index, run=run, section="understand a trained model", out_is_file=True))
