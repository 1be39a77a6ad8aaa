"""`mnemoscope dev store list`, `verify` and `clean`: what `claims run` keeps of what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions
from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    from mnemoscope.claims.store import StoredFile


@dataclass(frozen=True, kw_only=True)
class StoreOptions(CommandOptions):
    """Options of commands that read a store."""

    store: Positional[Path] = Path("verdicts/measured")
    """What --store of `claims run` named; without it OUT/measured."""


@dataclass(frozen=True, kw_only=True)
class StoreList(StoreOptions):
    """List the measurements in a store: how many for each configuration, control and draw, and how many are read."""


def store_list(options: StoreList) -> None:
    """Print a line for each directory of the store, and one for all."""
    from mnemoscope.claims.store import stored_files
    from mnemoscope.cli.output import show

    groups: dict[str, list[StoredFile]] = {}
    for each in stored_files(options.store):
        groups.setdefault(each.name.rpartition("/")[0] or ".", []).append(each)
    everything = [each for group in groups.values() for each in group]
    rows = [_row(name, group) for name, group in groups.items()] + [_row("all", everything)]
    show(f"{options.store}", ("measured of", "files", "results", "of other versions", "damaged", "kB"), rows)


def _row(name: str, group: list[StoredFile]) -> list[str]:
    numbers = (
        len(group),
        sum(each.current for each in group),
        sum(each.other for each in group),
        sum(bool(each.problem) for each in group),
    )
    return [name, *map(str, numbers), f"{sum(each.n_bytes for each in group) / 1000:.0f}"]


@dataclass(frozen=True, kw_only=True)
class StoreVerify(StoreOptions):
    """Read every file of a store and refuse it, with rc 2, if one is damaged."""


def store_verify(options: StoreVerify) -> None:
    """Print which file has which fault; raises InputError where a file is damaged."""
    from mnemoscope.claims.store import incomplete_files, stored_files
    from mnemoscope.cli.output import console, show
    from mnemoscope.report.tables import pluralise

    kept = stored_files(options.store)
    if left := incomplete_files(options.store):
        console.print(f"{pluralise(len(left), 'incomplete file')} of killed processes, never read", highlight=False)
    damaged = [each for each in kept if each.problem]
    if damaged:
        show("damaged", ("file", "why"), [[str(each.path), each.problem] for each in damaged], n_text=2)
        raise InputError(
            f"{len(damaged)} of {pluralise(len(kept), 'file')} in {options.store} cannot be read; "
            f"`mnemoscope dev store clean {options.store}` removes what is damaged, and it is measured again"
        )
    console.print(f"{pluralise(len(kept), 'file')} in {options.store}, all whole", highlight=False)


@dataclass(frozen=True, kw_only=True)
class StoreClean(StoreOptions):
    """Remove what is damaged, and what killed processes left behind more than an hour ago."""

    others: bool = False
    """Remove results of other versions of mnemoscope, torch and TransformerLens too, which this one measures again."""


def store_clean(options: StoreClean) -> None:
    """Remove it, and say how much there is left."""
    from mnemoscope.claims.store import clean_store, stored_files
    from mnemoscope.cli.output import console
    from mnemoscope.report.tables import pluralise

    changed = clean_store(stored_files(options.store), options.store, others=options.others)
    for path in changed:
        console.print(f"{'shortened' if path.exists() else 'removed'} {path}", highlight=False)
    console.print(f"{pluralise(len(changed), 'file')} removed or shortened in {options.store}", highlight=False)


for _name, _options, _run in (
    ("list", StoreList, store_list),
    ("verify", StoreVerify, store_verify),
    ("clean", StoreClean, store_clean),
):
    _command = Command(options=_options, run=_run, section="for maintainers", earlier={f"store {_name}": {}})
    COMMANDS.add(f"dev store {_name}", _command)
