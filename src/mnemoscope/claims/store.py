"""The store of measurements: files of results by key, each with a stamp of what it rests on and a digest of itself.

An entry whose digest does not match was edited, and is refused by name when evidence is taken from it. Entries of
other versions of the library, and those from before digests were kept, are measured again. *Does not show* an edit by
somebody who writes the digest anew: `mnemoscope claims verify` measures some of them again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any

from mnemoscope.core.errors import InputError
from mnemoscope.core.version import NUMBERS
from mnemoscope.models.files import write_atomically

RESTS_ON = ("torch", "transformer-lens")
"""Distributions whose versions decide what is measured, whatever the measure."""


def text_digest(text: str) -> str:
    """SHA-256 of a text, 16 digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def entry_of(name: str, key: str, stamp: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    """A measurement as a store keeps it, with the digest of all of it and of its place."""
    digest = text_digest(json.dumps([name, key, stamp, measured], sort_keys=True))
    return {"stamp": stamp, "measured": measured, "digest": digest}


def is_as_kept(name: str, key: str, entry: Mapping[str, Any]) -> bool:
    """True if an entry is as it was written."""
    return entry["digest"] == entry_of(name, key, entry["stamp"], entry.get("measured", {}))["digest"]


def check_entries(file: Path, store: Path, name: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse entries of a file that were edited after they were kept, in one line."""
    edited = [key for key, entry in entries.items() if not is_as_kept(name, key, entry)]
    if edited:
        raise InputError(
            f"{file}: the result of {edited[0][:80]} was edited after it was kept (its digest does not match); "
            f"`mnemoscope dev store clean {store}` removes the file, and it is measured again"
        )


@cache
def instrument() -> str:
    """Versions that every result depends on: of our numbers, and of the packages below them."""
    return " ".join([f"numbers-{NUMBERS}", *(version(package) for package in RESTS_ON)])


def read_entries(file: Path) -> dict[str, dict[str, Any]]:
    """The results of this instrument that the file keeps, by key, with its stamp; nothing if it cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {key: entry for key, entry in content.items() if _is_current(entry)}
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return {}


LEFT_FOR = 3600.0
"""Seconds after which nobody is writing an incomplete file any more."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a store: what was measured of one run, control, draw or language model.

    `name` is that of its work. It holds `current` results, which this version of the library reads, and `other` ones,
    which it measures again. `problem` says why it cannot be read; it is `foreign` if it is whole and something else
    than measurements.
    """

    path: Path
    name: str
    n_bytes: int
    current: int = 0
    other: int = 0
    problem: str = ""
    foreign: bool = False


def stored_files(store: Path) -> list[StoredFile]:
    """The files of a store, by name; raises InputError where nothing was measured there."""
    if not store.is_dir():
        raise InputError(f"{store} is no directory; a store is OUT/measured of `claims run`, or what --store named")
    files = [file for file in sorted(store.rglob("*.json")) if not file.name.startswith(".")]
    if not files:
        raise InputError(f"{store} holds no measurements")
    return [_inspect_file(file, store) for file in files]


def incomplete_files(store: Path) -> list[Path]:
    """Files that killed processes left behind, and nobody is writing any more."""
    dotted = [file for file in sorted(store.rglob(".*.json.*")) if file.is_file()]
    return [file for file in dotted if time() - file.stat().st_mtime > LEFT_FOR]


def clean_store(files: Sequence[StoredFile], store: Path, *, others: bool = False) -> list[Path]:
    """Remove files that cannot be read, and what killed processes left behind; return what was removed or shortened.

    With `others`, results of other versions of the library go too; other users may still want them. Raises InputError,
    and removes nothing, where something else lies there too, so that it may be no store.
    """
    if foreign := [each.path for each in files if each.foreign]:
        raise InputError(f"{store} is no store of measurements: {foreign[0]} holds something else; nothing was removed")
    damaged, left = [each.path for each in files if each.problem], incomplete_files(store)
    for file in (*damaged, *left):
        file.unlink(missing_ok=True)
    shortened = [each.path for each in files if others and each.other and not each.problem]
    for path in shortened:
        current = read_entries(path)
        if current:
            write_atomically(path, json.dumps(current).encode(), shared=True)
        else:
            path.unlink(missing_ok=True)
    return [*damaged, *shortened, *left]


def _inspect_file(file: Path, store: Path) -> StoredFile:
    found = StoredFile(path=file, name=file.relative_to(store).with_suffix("").as_posix(), n_bytes=file.stat().st_size)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return replace(found, problem=f"no JSON: {error}")
    problem = "holds something else than measurements"
    if not isinstance(content, dict) or not all(map(_is_stamped, content.values())):
        return replace(found, problem=problem, foreign=True)
    entries = list(content.values())
    measured = [entry.get("measured") for entry in entries]
    if not all(isinstance(each, dict) and _are_numbers(list(each.values())) for each in measured):
        return replace(found, problem=problem)
    current = {key: entry for key, entry in content.items() if _is_current(entry)}
    if edited := [key for key, entry in current.items() if not is_as_kept(found.name, key, entry)]:
        return replace(found, problem=f"edited after it was kept: {edited[0]}")
    return replace(found, current=len(current), other=len(entries) - len(current))


def _is_stamped(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("stamp"), str)


def _is_current(entry: Any) -> bool:
    """True for an entry of this instrument; one without a digest is of an earlier one."""
    return entry["stamp"].startswith(f"{instrument()} ") and "digest" in entry


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_are_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
