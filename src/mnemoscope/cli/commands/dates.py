"""`mnemoscope dev dates`: when claims were registered and when their runs came, from the history of git."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Claims, CommandOptions
from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ClaimDates(CommandOptions):
    """Write the dates of registrations and of runs, from the history of git: `dates.json` beside `registered.json`."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""


def claim_dates(options: ClaimDates) -> None:
    """Write the dates of every package that the claims belong to, and print the standing of each claim."""
    from mnemoscope.claims.history import history_dates
    from mnemoscope.claims.registration import package_of, read_registrations
    from mnemoscope.claims.standing import FILE, claim_standing, read_dates
    from mnemoscope.cli.output import console, show
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.models.files import write_atomically

    claims = claims_named(options.what)
    for package in dict.fromkeys(map(package_of, claims)):
        if package is None:
            raise InputError("claims that belong to no package have no registrations; leave them out")
        by_id = {claim.id: claim for claim in claims if package_of(claim) == package}
        registered = {id: entry for id, entry in read_registrations(package).items() if id in by_id}
        others = {id: dates for id, dates in read_dates(package).items() if id not in by_id}
        found = {**others, **history_dates(by_id, registered, package)}
        write_atomically(package / FILE, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
        console.print(f"wrote {package / FILE}", highlight=False)
    rows = [[claim.id, str(claim_standing(claim, None))] for claim in claims]
    show("registrations and runs", ("id", "standing"), rows, n_text=2)


COMMANDS.add("dev dates", Command(options=ClaimDates, run=claim_dates, section="for maintainers"))
