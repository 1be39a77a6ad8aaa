"""Write `catalogue.json` of guests: `python -m mnemoscope.cli.cataloguing`, for all, or for named packages.

An installed guest of a user gains the same: its claims are listed in a tenth of the time.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import mnemoscope as ms
from mnemoscope.claims.claim import GATE
from mnemoscope.claims.functions import name_of
from mnemoscope.claims.registration import superseded
from mnemoscope.cli.catalogue import FILE, Kind, sources_digest
from mnemoscope.core import guests
from mnemoscope.core.errors import one_of
from mnemoscope.core.presets import in_words
from mnemoscope.core.registry import Registry
from mnemoscope.models.files import write_atomically
from mnemoscope.report.rulings import asked
from mnemoscope.report.rulings.words import earlier_text


def entries(kind: Kind, of: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """The things that guests (all, or those in `of`) have registered of a kind, in the form of a catalogue."""
    registry, entry = _KINDS[kind]
    return {name: entry(registry.get(name)) for name in registry.names(of)}


def write(guest: str) -> None:
    """Write the catalogue of a guest that is a package, in a process that has imported no other yet."""
    one_of("a guest", guest, guests.guests())
    place = guests.location(guest)
    assert place is not None
    before = {kind: set(registry.names(())) for kind, (registry, _) in _KINDS.items()}
    found = {
        kind: {name: each for name, each in entries(kind, [guest]).items() if name not in before[kind]}
        for kind in _KINDS
    }
    guests.require(guest)
    content = json.dumps({"sources": sources_digest(place), **found}, indent=1, ensure_ascii=False)
    write_atomically(place / FILE, (content + "\n").encode())


def _system(item: ms.System) -> dict[str, Any]:
    return {"summary": item.summary, "in_words": in_words([item])}


def _task(cls: type) -> dict[str, Any]:
    return {"summary": (cls.__doc__ or "").strip().splitlines()[0]}


def _preset(preset: ms.Preset) -> dict[str, Any]:
    return {"summary": preset.summary, "recipes": list(preset.recipes)}


def _claim(claim: ms.Claim) -> dict[str, Any]:
    return {
        "statement": claim.statement,
        "system": claim.system,
        "headline": claim.headline,
        "rivals": [rival.id for rival in claim.rivals],
        "fixed": fixed(claim),
    }


def fixed(claim: ms.Claim) -> list[list[str]]:
    """Pairs of words on all that is fixed about a claim before it is tried, and on its earlier forms."""
    rows = [["source", claim.source], *map(list, asked.fixed(claim))]
    explained = {} if claim.explanation is None else claim.explanation.quantities
    rows += [[asked.effect_name(name), asked.described(claim, name)] for name in explained if name != GATE]
    rows += [
        [f"{control.kind} control", f"{control.name}; expected: {asked.must_give(claim, control)}"]
        for control in claim.controls
    ]
    rows += [
        ["rival", f"{rival.id}: {rival.statement} {asked.holds_if(rival, subject='It')}"] for rival in claim.rivals
    ]
    rows += [["varied", f"{name}: {', '.join(map(str, values))}"] for name, values in claim.factors.items()]
    if claim.measure is not None:
        rows.append(["measure", name_of(claim.measure)])
    return rows + [["asked before", earlier_text(earlier)] for earlier in superseded(claim)]


_KINDS: Mapping[Kind, tuple[Registry[Any], Callable[[Any], dict[str, Any]]]] = {
    "tasks": (ms.TASKS, _task),
    "presets": (ms.PRESETS, _preset),
    "systems": (ms.SYSTEMS, _system),
    "claims": (ms.CLAIMS, _claim),
}

if __name__ == "__main__":
    for _guest in sys.argv[1:] or [guest for guest in guests.guests() if guests.location(guest)]:
        write(_guest)
