"""The contents of guests, for lists: read from `catalogue.json` in a guest's package, without importing it.

`python -m mnemoscope.cli.cataloguing` writes these files. A file older than its guest's tasks, presets, claims or
registrations is not read, and most guests of users have none: such guests are imported, which takes seconds.

*Does not show* more than lists need. Code that acts on a task or a claim takes it from its registry.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mnemoscope.core import guests
from mnemoscope.core.errors import one_of

Kind = Literal["tasks", "presets", "systems", "claims"]
Entries = Mapping[str, Mapping[str, Any]]
"""The entries of lists by name: `summary`; for a preset also its `recipes`; for a system the names of changed presets
`in_words`; for a claim `statement`, `system`, `headline`, its `rivals`, and pairs of words on what is `fixed`."""

FILE = "catalogue.json"
REGISTERED = "registered.json"
"""As `claims.registered.FILE`, whose import takes torch along: earlier forms of a claim are shown too."""
_HOMES = ("task", "preset", "claim")
"""First words of the modules and folders of a guest that decide the contents of its catalogue."""

_REGISTRIES: Mapping[Kind, str] = {
    "tasks": "mnemoscope.core.specification",
    "presets": "mnemoscope.core.presets",
    "systems": "mnemoscope.core.presets",
    "claims": "mnemoscope.claims.claim",
}
"""Modules of the registries; each import takes torch along."""


def listed(kind: Kind) -> Entries:
    """The registered things of a kind, by name, guest by guest, scripts included; claims by system and number."""
    kept = {guest: _kept(guests.location(guest)) for guest in guests.guests()}
    found = {name: entry for content in kept.values() if content for name, entry in content[kind].items()}
    unknown = [guest for guest, content in kept.items() if content is None]
    if unknown or _REGISTRIES[kind] in sys.modules:
        from mnemoscope.cli.cataloguing import entries

        found |= entries(kind, unknown)
    if kind == "claims":
        return dict(sorted(found.items(), key=lambda item: (item[1]["system"], len(item[0]), item[0])))
    return found


def claims_listed(words: tuple[str, ...]) -> Entries:
    """The claims with these ids or of these systems; all if there are no words."""
    found = listed("claims")
    known = dict.fromkeys([*(entry["system"] for entry in found.values()), *found])
    for word in words:
        one_of("a claim or a system", word, known)
    return {id: entry for id, entry in found.items() if not words or id in words or entry["system"] in words}


def sources_digest(place: Path) -> str:
    """SHA-256, 16 digits, of the files of a guest that decide the contents of its catalogue."""
    found = (*place.rglob("*.py"), *place.rglob("*.yaml"))  # the texts of claims are YAML
    files = [file for file in found if file.relative_to(place).parts[0].startswith(_HOMES)]
    state = hashlib.sha256()
    for file in [*sorted(files), *place.glob(REGISTERED)]:
        state.update(file.relative_to(place).as_posix().encode() + b"\0")
        state.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return state.hexdigest()[:16]


@cache
def _kept(place: Path | None) -> Mapping[str, Any] | None:
    """The catalogue of a guest in that directory; None where there is none of these sources."""
    try:
        content = json.loads(((place or Path()) / FILE).read_text(encoding="utf-8")) if place else {}
    except (OSError, ValueError):
        return None
    return content if place and content.get("sources") == sources_digest(place) else None
