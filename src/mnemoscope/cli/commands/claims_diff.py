"""`mnemoscope claims diff`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options


@dataclass(frozen=True, kw_only=True)
class ClaimsDiff(Options):
    """What differs between two trials: verdicts, shares and effects, with those of rivals and sensitivity tables."""

    old: Positional[Path]
    """verdicts.json, or the directory that holds it."""
    new: Positional[Path]
    """verdicts.json, or the directory that holds it."""


def run(options: ClaimsDiff) -> None:
    """Print what differs."""
    from mnemoscope.cli.claims import read_verdicts
    from mnemoscope.cli.output import console, show
    from mnemoscope.viz.rulings import DIFF_HEADER, diff_rows

    rows = diff_rows(read_verdicts(options.old), read_verdicts(options.new))
    if rows:
        show(f"{options.old} → {options.new}", DIFF_HEADER, rows, n_text=5)
    else:
        console.print("the two agree in every verdict, share and effect", highlight=False)


COMMANDS.add("claims diff", Command(options=ClaimsDiff, run=run, section="put claims on trial"))
