"""`mnemoscope claims list`."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options


@dataclass(frozen=True, kw_only=True)
class ClaimsList(Options):
    """The claims that can be put on trial, with their rivals."""

    what: Positional[tuple[str, ...]] = ()
    """Systems or claims, such as tiny-recall or T14; none: all."""


def run(options: ClaimsList) -> None:
    """Print every claim on a line, with its rivals."""
    from mnemoscope.cli.claims import claims_called
    from mnemoscope.cli.output import show

    rows = [
        [claim.id, claim.statement, ", ".join(rival.id for rival in claim.rivals), "headline" * claim.headline]
        for claim in claims_called(options.what)
    ]
    show("claims", ("id", "statement", "rivals", ""), rows, n_text=4)


COMMANDS.add("claims list", Command(options=ClaimsList, run=run, section="put claims on trial"))
