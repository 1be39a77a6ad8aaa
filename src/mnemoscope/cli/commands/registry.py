"""`mnemoscope claims export`, `claims import`, `claims validate` and `dev entries`: the registry of claims as files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Claims, CommandOptions
from mnemoscope.core.errors import InputError, pluralise

if TYPE_CHECKING:
    from mnemoscope.claims.entry import Entry


@dataclass(frozen=True, kw_only=True)
class ClaimsExport(CommandOptions):
    """Write claims as entries of the registry, a JSON file each: source, all that is fixed, every verdict.

    With --format inspect: their verdicts as logs of Inspect (inspect-ai), one file a system.
    """

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""
    out: Path = Path("claims")
    """Directory for <id>.json, a file per claim."""
    format: Literal["registry", "inspect"] = "registry"
    """Entries of the registry, or evaluation logs."""


def claims_export(options: ClaimsExport) -> None:
    """Write an entry per claim, with what stands by hand in the entries of its package."""
    from mnemoscope.claims.entry import entry_of, write_entry
    from mnemoscope.claims.registration import package_of
    from mnemoscope.cli.output import console
    from mnemoscope.cli.refusals import check_out
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.registry.export import export_entry

    check_out(options.out, is_file=False)
    entries = [export_entry(claim, entry_of(package_of(claim), claim.id)) for claim in claims_named(options.what)]
    if options.format == "inspect":
        _write_logs(entries, options.out)
        return
    for entry in entries:
        write_entry(entry, options.out)
    console.print(f"wrote {pluralise(len(entries), 'claim')} to {options.out}", highlight=False)


def _write_logs(entries: list[Entry], out: Path) -> None:
    """Write verdicts as logs of Inspect."""
    import mnemoscope as ms
    from mnemoscope.cli.output import console
    from mnemoscope.models.files import write_atomically
    from mnemoscope.registry.inspect_logs import inspect_logs

    logs = inspect_logs(entries, ms.__version__)
    if not logs:
        raise InputError("none of the claims has a verdict that counts; a log holds verdicts")
    for name, log in logs.items():
        text = json.dumps(log, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        moment = str(log["eval"]["created"])[:19].replace(":", "-")  # Inspect lists files that begin with a moment
        write_atomically(out / f"{moment}_{name}.json", text.encode())
    n_verdicts = sum(len(log["samples"]) for log in logs.values())
    console.print(
        f"wrote {pluralise(len(logs), 'log')} with {pluralise(n_verdicts, 'verdict')} to {out}", highlight=False
    )


@dataclass(frozen=True, kw_only=True)
class ClaimsImport(CommandOptions):
    """Take verdicts of `claims run`, or replications, into entries of packages, or read and check entries of others."""

    what: Positional[tuple[Path, ...]]
    """verdicts.json of trials or their directories; lists of replications; entries or directories of entries."""
    reason: str = ""
    """Why an earlier verdict with another outcome no longer counts; it is kept as superseded."""
    report: str = ""
    """Place that tells more of the trials, such as a folder of the repository; none: that of the earlier verdict."""
    out: Path | None = None
    """Directory for the entries, OUT/<package>/<system>/<id>.json; none: verdicts go into the entries of the packages,
    and entries of others are shown only."""


def claims_import(options: ClaimsImport) -> None:
    """Sort the paths, check all before anything is written, and print what changed."""
    from mnemoscope.cli.commands.claims import read_verdicts
    from mnemoscope.cli.output import console, show
    from mnemoscope.cli.refusals import check_out

    if not options.what:
        raise InputError("claims import needs verdicts.json of a trial, or entries")
    if options.out is not None:
        check_out(options.out, is_file=False)
    trials = [path for path in options.what if _is_trial(path)]
    records = [record for path in trials for record in read_verdicts(path)]
    changed = _with_trials(records, options)
    others = _checked_entries([path for path in options.what if path not in trials])
    rows = [[entry.id, before, _verdict_words(entry)] for _, before, entry in changed]
    rows += [[entry.id, "", _verdict_words(entry)] for entry in others]
    for file, _, entry in changed:
        _write(entry, file, options.out)
    if options.out is not None:
        for entry in others:
            _write(entry, None, options.out)
    show("imported" if changed or options.out else "read", ("id", "verdict before", "verdict"), rows, n_text=3)
    console.print(f"{pluralise(len(rows), 'claim')}, none at fault", highlight=False)


def _is_trial(path: Path) -> bool:
    """True for verdicts.json of a trial and a directory with one."""
    import json
    from contextlib import suppress

    file = path / "verdicts.json" if path.is_dir() else path
    with suppress(OSError, ValueError):
        return isinstance(json.loads(file.read_text(encoding="utf-8")), list)
    return False


def _with_trials(records: list[dict[str, Any]], options: ClaimsImport) -> list[tuple[Path, str, Entry]]:
    """The entries that records belong to, with their verdicts: file, verdict before, entry."""
    from mnemoscope.claims.entry import packaged_entries
    from mnemoscope.core.errors import one_of
    from mnemoscope.registry.importing import with_replication, with_verdict

    there = {entry.short_id: (file, entry) for file, entry in packaged_entries()} if records else {}
    found = []
    for record in records:
        replicated = "claim" in record
        id = record["claim" if replicated else "id"]
        one_of("a claim with an entry", id, there)
        file, entry = there[id]
        if replicated:
            after = with_replication(entry, record)
        else:
            after = with_verdict(entry, record, reason=options.reason, report=options.report)
        found.append((file, _verdict_words(entry), after))
    return found


def _checked_entries(paths: list[Path]) -> list[Entry]:
    """The entries of others; InputError where one is at fault, or is another claim under an id of the packages."""
    from mnemoscope.claims.entry import packaged_entries
    from mnemoscope.registry.reading import entry_files, read_registry
    from mnemoscope.registry.validation import file_faults

    if not paths:
        return []
    for file, faults in file_faults(entry_files(paths)).items():
        if faults:
            raise InputError(f"{file}: {faults[0]}; `mnemoscope claims validate` lists all faults")
    there = {entry.id: entry for _, entry in packaged_entries()}
    entries = list(read_registry(paths).values())
    for entry in entries:
        known = there.get(entry.id)
        if known is not None and known.registration.question != entry.registration.question:
            raise InputError(
                f"{entry.id} asks another question in an installed package; a claim that was changed is another claim: "
                "give it another version or id"
            )
    return entries


def _verdict_words(entry: Entry) -> str:
    verdict = entry.verdict
    return "not tried" if verdict is None else f"{verdict.outcome.replace('_', ' ')}, {verdict.n_clear} of {verdict.n}"


def _write(entry: Entry, file: Path | None, out: Path | None) -> None:
    from mnemoscope.claims.entry import write_entry

    package, _, name = entry.id.partition(":")
    directory = file.parent if file is not None and out is None else out
    assert directory is not None
    write_entry(entry, directory if directory is not out else directory / package / name.partition("/")[0])


@dataclass(frozen=True, kw_only=True)
class ClaimsValidate(CommandOptions):
    """Check entries of the registry: fields by the schema, that each claim can lose, and that each verdict adds up."""

    what: Positional[tuple[Path, ...]]
    """Entries, or directories that hold some."""


def claims_validate(options: ClaimsValidate) -> None:
    """Print a line per fault; raises InputError with their number if there is one."""
    from mnemoscope.cli.output import console
    from mnemoscope.registry.reading import entry_files
    from mnemoscope.registry.validation import file_faults

    if not options.what:
        raise InputError("claims validate needs entries, or a directory that holds some")
    found = file_faults(entry_files(options.what))
    for file, faults in found.items():
        for fault in faults:
            console.print(f"{file}: {fault}", highlight=False, markup=False, soft_wrap=True)
    if n := sum(map(len, found.values())):
        at_fault = sum(map(bool, found.values()))
        raise InputError(f"{pluralise(n, 'fault')} in {at_fault} of {pluralise(len(found), 'entry file')}")
    console.print(f"{pluralise(len(found), 'entry file')}, no fault", highlight=False)


@dataclass(frozen=True, kw_only=True)
class DevEntries(CommandOptions):
    """Write the entries of packages anew from code, registrations and the history of git; hand-written fields stay."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: all."""
    history: bool = True
    """Read the dates of registrations and runs and the commits of verdicts from the history of git; else they stay."""


def dev_entries(options: DevEntries) -> None:
    """Refresh the entries of every package that the claims belong to, and print the standing of each claim."""
    from mnemoscope.claims.history import history_dates, judging_commits
    from mnemoscope.claims.registration import package_of, read_registrations
    from mnemoscope.claims.standing import claim_standing
    from mnemoscope.cli.output import console, show
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.registry.export import refresh_entries

    claims = claims_named(options.what)
    for package in dict.fromkeys(map(package_of, claims)):
        if package is None:
            raise InputError("claims that belong to no package have no registry; leave them out")
        by_id = {claim.id: claim for claim in claims if package_of(claim) == package}
        registered = {id: entry for id, entry in read_registrations(package).items() if id in by_id}
        dates = history_dates(by_id, registered, package) if options.history else {}
        commits = judging_commits(package) if options.history else {}
        written = refresh_entries(by_id.values(), dates, commits)
        console.print(f"wrote {pluralise(len(written), 'claim')} to {package / 'registry'}", highlight=False)
    rows = [[claim.id, str(claim_standing(claim, None))] for claim in claims]
    show("registrations and runs", ("id", "standing"), rows, n_text=2)


for _name, _options, _run in (
    ("claims export", ClaimsExport, claims_export),
    ("claims import", ClaimsImport, claims_import),
    ("claims validate", ClaimsValidate, claims_validate),
):
    COMMANDS.add(_name, Command(options=_options, run=_run, section="test a claim"))
COMMANDS.add(
    "dev entries", Command(options=DevEntries, run=dev_entries, section="for maintainers", earlier={"dev dates": {}})
)
