"""The store of measurements, seen from outside: what its files hold, whether they are whole, and what may go.

A store is a directory that several commands, users and machines may write to at once: every file is moved into place
when it is complete. What a killed process had not completed stays behind under a name that begins with a dot.

*Does not show* whether a run has changed since it was measured: that is found out when it is measured again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from mnemoscope.claims.measuring import instrument
from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically

LEFT_FOR = 3600.0
"""Seconds after which nobody is writing an incomplete file any more."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A file of a store: what was measured of one run, control, draw or language model."""

    path: Path
    name: str
    """The name of what was measured, as `Work.name`."""
    current: int = 0
    """Results that this version of the library reads."""
    other: int = 0
    """Results of other versions, which it measures again."""
    n_bytes: int = 0
    problem: str = ""
    """Why it cannot be read; empty if it can."""
    foreign: bool = False
    """True if it is whole and something else than measurements."""


def kept_in(store: Path) -> list[Kept]:
    """The files of a store, by name; raises InputError where nothing was measured there."""
    if not store.is_dir():
        raise InputError(f"{store} is no directory; a store is OUT/measured of `claims run`, or what --store named")
    files = [file for file in sorted(store.rglob("*.json")) if not file.name.startswith(".")]
    if not files:
        raise InputError(f"{store} holds no measurements")
    return [_kept(file, store) for file in files]


def incomplete(store: Path) -> list[Path]:
    """Files that killed processes left behind, and nobody is writing any more."""
    dotted = [file for file in sorted(store.rglob(".*.json.*")) if file.is_file()]
    return [file for file in dotted if time() - file.stat().st_mtime > LEFT_FOR]


def clean(kept: Sequence[Kept], store: Path, *, others: bool = False) -> list[Path]:
    """Remove files that cannot be read, and what killed processes left behind; return the files that were removed or
    lost results.

    With `others`, results of other versions of the library go too; other users may still want them. Raises InputError,
    and removes nothing, where something else lies there too, so that it may be no store.
    """
    if foreign := [each.path for each in kept if each.foreign]:
        raise InputError(f"{store} is no store of measurements: {foreign[0]} holds something else; nothing was removed")
    changed = [each.path for each in kept if each.problem]
    left = incomplete(store)
    for file in (*changed, *left):
        file.unlink(missing_ok=True)
    for each in kept if others else ():
        if each.problem or not each.other:
            continue
        current = {key: entry for key, entry in json.loads(each.path.read_text()).items() if _is_current(entry)}
        if current:
            write_atomically(each.path, json.dumps(current).encode(), shared=True)
        else:
            each.path.unlink(missing_ok=True)
        changed.append(each.path)
    return [*changed, *left]


def _kept(file: Path, store: Path) -> Kept:
    name, n_bytes = file.relative_to(store).with_suffix("").as_posix(), file.stat().st_size
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        return Kept(path=file, name=name, n_bytes=n_bytes, problem=f"no JSON: {error}")
    if not isinstance(content, dict) or not all(map(_is_entry, content.values())):
        stamped = isinstance(content, dict) and all(map(_is_stamped, content.values()))
        problem = "holds something else than measurements"
        return Kept(path=file, name=name, n_bytes=n_bytes, problem=problem, foreign=not stamped)
    current = sum(map(_is_current, content.values()))
    return Kept(path=file, name=name, n_bytes=n_bytes, current=current, other=len(content) - current)


def _is_entry(entry: Any) -> bool:
    """True for numbers with the stamp of what they were measured with."""
    if not _is_stamped(entry):
        return False
    measured = entry.get("measured")
    return isinstance(measured, dict) and all(map(_are_numbers, measured.values()))


def _is_stamped(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("stamp"), str)


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_are_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_current(entry: Any) -> bool:
    return entry["stamp"].startswith(f"{instrument()} ")
