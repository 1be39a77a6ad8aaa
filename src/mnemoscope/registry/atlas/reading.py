"""Entries for the atlas, from directories and files, or from all packages that bring some."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mnemoscope.core.errors import InputError
from mnemoscope.registry.entry import Entry


def read_entries(places: Sequence[Path]) -> list[Entry]:
    """The entries in directories (`*.json`) and files.

    Raises:
        InputError: A place holds no entry, or an entry is damaged.
    """
    return [_read(file) for place in places for file in _files(place)]


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if found := sorted(place.glob("*.json")):
        return found
    missing = "holds no entries" if place.is_dir() else "does not exist"
    raise InputError(f"{place} {missing}; name a directory with entries of a registry, one <id of the claim>.json each")


def _read(file: Path) -> Entry:
    try:
        return Entry.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{file}: {'.'.join(map(str, first['loc'])) or 'entry'}: {first['msg']}") from None
