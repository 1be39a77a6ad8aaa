"""Lists of tasks, presets, systems and claims that do not wait seconds for the guests to be imported.

The lists are kept in the user's cache with a digest of the sources of every guest, and of the parts of the library
that word them. After any change of these another process imports the guests once, and the lists are kept anew. A
process that has a registry already reads that, so what a script registers itself is listed too.

*Does not show* more than lists need. Code that acts on a task or a claim takes it from its registry.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mnemoscope.core import guests
from mnemoscope.core.errors import one_of
from mnemoscope.models.files import user_cache, write_atomically

Kind = Literal["tasks", "presets", "systems", "claims"]
Entries = Mapping[str, Mapping[str, Any]]
"""The entries of lists by name: `summary`; for a preset also its `recipes`; for a system the names of changed presets
`in_words`; for a claim `statement`, `system`, `headline`, its `rivals`, and pairs of words on what is `fixed`."""

_REGISTRIES: Mapping[Kind, str] = {
    "tasks": "mnemoscope.core.specification",
    "presets": "mnemoscope.core.presets",
    "systems": "mnemoscope.core.presets",
    "claims": "mnemoscope.claims.claim",
}
"""Modules of the registries; each import takes torch along."""
_ROOMS = ("core", "claims", "report", "cli/catalogue.py")
"""The parts of the library that decide the words of a list."""
_SOURCES = (".py", ".json", ".yaml", ".yml", ".toml", ".md", ".txt", ".csv")
_PRINT = "import sys; from mnemoscope.cli.catalogue import print_registered; print_registered(sys.argv[1:])"


def catalogue_entries(kind: Kind) -> Entries:
    """The registered things of a kind, by name, guest by guest, scripts included; claims by system and number."""
    found = collect_entries(kind) if _REGISTRIES[kind] in sys.modules else _cached_lists(guests.invited_sources())[kind]
    if kind == "claims":
        return dict(sorted(found.items(), key=lambda item: (item[1]["system"], len(item[0]), item[0])))
    return found


def claim_entries(words: tuple[str, ...]) -> Entries:
    """The claims with these ids or of these systems; all if there are no words."""
    found = catalogue_entries("claims")
    known = dict.fromkeys([*(entry["system"] for entry in found.values()), *found])
    for word in words:
        one_of("a claim or a system", word, known)
    return {id: entry for id, entry in found.items() if not words or id in words or entry["system"] in words}


@cache
def _cached_lists(invited: tuple[str, ...]) -> Mapping[str, Entries]:
    """The lists of all kinds, from the user's cache where the sources are those that it was made from."""
    places = list(_source_places())
    digest = sources_digest(places)
    name = hashlib.sha256("\0".join(map(str, places)).encode()).hexdigest()[:16]
    file = user_cache() / "catalogues" / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["sources"] == digest:
            return content["lists"]
    lists = _from_another_process(invited)
    if lists is None:  # such as a guest that is broken: each command says so
        return {kind: collect_entries(kind) for kind in _REGISTRIES}
    with suppress(OSError):
        write_atomically(file, json.dumps({"sources": digest, "lists": lists}).encode(), shared=True)
    return lists


def _from_another_process(invited: tuple[str, ...]) -> Mapping[str, Entries] | None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _PRINT, *invited]
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        return json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def print_registered(invited: list[str]) -> None:
    """Print the lists of all kinds as JSON; fails where a guest cannot be imported."""
    for source in invited:
        guests.invite(source)
    lists = {kind: collect_entries(kind) for kind in _REGISTRIES}
    for guest in guests.guests():
        guests.check_importable(guest)
    print(json.dumps(lists))


def _source_places() -> Iterator[Path]:
    """The directories and files that hold the sources of the library and of guests."""
    library = Path(__file__).parents[1]
    yield from (library / room for room in _ROOMS)
    for guest in guests.guests():
        place = guests.location(guest)
        if place is None:
            found = sys.modules.get(guest) or importlib.util.find_spec(guest)
            origin = getattr(found, "__file__", None) or getattr(found, "origin", None)
            place = Path(origin) if origin else None
        if place is not None:
            yield place


def sources_digest(places: list[Path]) -> str:
    """SHA-256, 16 digits, of the sources in directories, and of single files."""
    state = hashlib.sha256()
    for place in places:
        for file in [place] if place.is_file() else _source_files(place):
            state.update(os.path.relpath(file, place).encode() + b"\0")
            state.update(file.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def _source_files(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(_SOURCES))


# ---- from the registries, which are imported with all guests


def collect_entries(kind: Kind) -> dict[str, dict[str, Any]]:
    """The entries of what all guests have registered of a kind."""
    import mnemoscope as ms
    from mnemoscope.core.presets import names_with_words

    if kind == "tasks":
        classes = {name: ms.TASKS.get(name) for name in ms.TASKS.names()}
        return {name: {"summary": (cls.__doc__ or "").strip().splitlines()[0]} for name, cls in classes.items()}
    if kind == "presets":
        presets = {name: ms.PRESETS.get(name) for name in ms.PRESETS.names()}
        return {name: {"summary": each.summary, "recipes": list(each.recipes)} for name, each in presets.items()}
    if kind == "systems":
        systems = {name: ms.SYSTEMS.get(name) for name in ms.SYSTEMS.names()}
        return {name: {"summary": each.summary, "in_words": names_with_words([each])} for name, each in systems.items()}
    return {name: _claim_entry(ms.CLAIMS.get(name)) for name in ms.CLAIMS.names()}


def _claim_entry(claim: Any) -> dict[str, Any]:
    return {
        "statement": claim.statement,
        "system": claim.system,
        "headline": claim.headline,
        "rivals": [rival.id for rival in claim.rivals],
        "fixed": _fixed_terms(claim),
    }


def _fixed_terms(claim: Any) -> list[list[str]]:
    """Pairs of words on all that is fixed about a claim before it is tried, and on its earlier forms."""
    from mnemoscope.claims.claim import GATE
    from mnemoscope.claims.functions import name_of
    from mnemoscope.claims.registration import superseded_forms
    from mnemoscope.claims.standing import claim_standing
    from mnemoscope.report.rulings import words

    rows = [["source", claim.source], *map(list, words.registered_terms(claim))]
    explained = {} if claim.explanation is None else claim.explanation.quantities
    rows += [[words.effect_name(name), words.describe_quantity(claim, name)] for name in explained if name != GATE]
    rows += [
        [f"{control.kind} control", f"{control.name}; expected: {words.required_control_result(claim, control)}"]
        for control in claim.controls
    ]
    rows += [
        ["rival", f"{rival.id}: {rival.statement} {words.support_condition(rival, subject='It')}"]
        for rival in claim.rivals
    ]
    rows += [["varied", f"{name}: {', '.join(map(str, values))}"] for name, values in claim.factors.items()]
    if claim.measure is not None:
        rows.append(["measure", name_of(claim.measure)])
    rows.append(["registered", str(claim_standing(claim, None))])
    return rows + [["asked before", words.earlier_text(earlier)] for earlier in superseded_forms(claim)]
