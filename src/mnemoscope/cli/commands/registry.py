"""`mnemoscope claims export`, and `dev entries`: the registry of claims as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Claims, CommandOptions


@dataclass(frozen=True, kw_only=True)
class ClaimsExport(CommandOptions):
    """Write claims as entries of the registry, a JSON file each: source, all that is fixed, every verdict."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""
    out: Path = Path("claims")
    """Directory for <id>.json, a file per claim."""


def claims_export(options: ClaimsExport) -> None:
    """Write an entry per claim, with what stands by hand in the entries of its package."""
    from mnemoscope.claims.entry import entry_of, write_entry
    from mnemoscope.claims.registration import package_of
    from mnemoscope.cli.output import console
    from mnemoscope.cli.refusals import check_out
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.core.errors import pluralise
    from mnemoscope.registry.export import export_entry

    check_out(options.out, is_file=False)
    entries = [export_entry(claim, entry_of(package_of(claim), claim.id)) for claim in claims_named(options.what)]
    for entry in entries:
        write_entry(entry, options.out)
    console.print(f"wrote {pluralise(len(entries), 'claim')} to {options.out}", highlight=False)


@dataclass(frozen=True, kw_only=True)
class DevEntries(CommandOptions):
    """Write the entries of packages anew from code, registrations and the history of git; hand-written fields stay."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""
    history: bool = True
    """Read the dates of registrations and runs from the history of git; else those on file stay."""


def dev_entries(options: DevEntries) -> None:
    """Refresh the entries of every package that the claims belong to, and print the standing of each claim."""
    from mnemoscope.claims.history import history_dates
    from mnemoscope.claims.registration import package_of, read_registrations
    from mnemoscope.claims.standing import claim_standing
    from mnemoscope.cli.output import console, show
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.core.errors import InputError, pluralise
    from mnemoscope.registry.export import refresh_entries

    claims = claims_named(options.what)
    for package in dict.fromkeys(map(package_of, claims)):
        if package is None:
            raise InputError("claims that belong to no package have no registry; leave them out")
        by_id = {claim.id: claim for claim in claims if package_of(claim) == package}
        registered = {id: entry for id, entry in read_registrations(package).items() if id in by_id}
        dates = history_dates(by_id, registered, package) if options.history else {}
        written = refresh_entries(by_id.values(), dates)
        console.print(f"wrote {pluralise(len(written), 'claim')} to {package / 'registry'}", highlight=False)
    rows = [[claim.id, str(claim_standing(claim, None))] for claim in claims]
    show("registrations and runs", ("id", "standing"), rows, n_text=2)


COMMANDS.add("claims export", Command(options=ClaimsExport, run=claims_export, section="test a claim"))
COMMANDS.add(
    "dev entries", Command(options=DevEntries, run=dev_entries, section="for maintainers", earlier={"dev dates": {}})
)
