"""Registrations that are kept: `registered.json` in the package of the guest that a claim's measure belongs to.

The file is committed with the claims. It holds what decides a verdict, digests of code as information, and what the
measure gave on the claim's controls, with the machine that computed it (`behaviour`). A registration that takes the
place of another keeps it under `superseded`, with the reason and the verdict that it led to.

*Does not show* that a registration is older than the runs; the history of the file does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mnemoscope.claims.behaviour import ELSEWHERE, HERE, Values, behaviour, distance, machine
from mnemoscope.claims.claim import Claim
from mnemoscope.claims.registration import VALUES, code_moved, differences, expected_seeds, registration
from mnemoscope.claims.verdict import Superseded
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically

FILE = "registered.json"
"""Registrations by the id of the claim."""


def registered(directory: Path | None) -> dict[str, dict[str, Any]]:
    """Registrations by id in the file of a directory; none where there is no file."""
    if directory is None or not (file := directory / FILE).is_file():
        return {}
    try:
        return json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None


def package_of(claim: Claim) -> Path | None:
    """The directory of the guest that the measure of a claim belongs to; None where that is no package."""
    function = claim.measure
    while isinstance(function, partial):
        function = function.func
    owner = None if function is None else guests.owner(function.__module__)
    return None if owner is None else guests.directory(owner)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A claim compared with its registration.

    `departures` are None for a claim that is not registered. Moved code is no departure, nor are other values where
    code has not moved and another machine may have given them. `code` says in words which code changed since, or values
    on another machine; it is empty without changes. `off` is the largest difference between values now and then, if
    they were compared.
    """

    departures: tuple[str, ...] | None = None
    code: str = ""
    off: float | None = None


def standing(
    claim: Claim, seeds: Sequence[int], values: Mapping[str, Values] = MappingProxyType({}), *, anew: bool = False
) -> Standing:
    """Compare a claim that is judged on these seeds with its registration.

    `values` are those of the measures on the controls of the claim and its rivals, by id; without them they are not
    compared. They are `anew` if they were measured just now, on this machine.
    """
    then = registered(package_of(claim)).get(claim.id)
    if then is None:
        return Standing()
    now, off, code = registration(claim, seeds), _distances(claim, values, then), ""
    here, unlike = anew and _is_here(then), _unlike(off, then, anew=anew)
    if moved := code_moved(now, then):
        found = ("differ" if unlike else "equal") if off else "not checked here"
        code = f"code moved since registration ({', '.join(moved)}); values {found}"
    elif unlike and not here:
        code = f"values differ by {max(off.values()):.1g} with the same code, as other machines may"
    departures = tuple(differences(now, then) or (unlike if moved or here else ()))
    return Standing(departures=departures, code=code, off=max(off.values()) if off else None)


def _distances(claim: Claim, values: Mapping[str, Values], then: Mapping[str, Any]) -> dict[str, float]:
    """The differences of values from those that are registered: `values`, those of rivals after the rival's id."""
    kept = {claim.id: then, **then["rivals"]}
    found = {id: distance(values[id], kept[id][VALUES]) for id in kept if id in values and VALUES in kept[id]}
    return {"values" if id == claim.id else f"{id}: values": by for id, by in found.items()}


def _is_here(then: Mapping[str, Any]) -> bool:
    """True if this is the machine that computed the values of a registration."""
    return then.get("machine") == machine()


def _unlike(off: Mapping[str, float], then: Mapping[str, Any], *, anew: bool) -> list[str]:
    """The values that are not as registered."""
    tolerance = HERE if anew and _is_here(then) else ELSEWHERE
    return [name for name, by in off.items() if by > tolerance]


def registered_versions(claim: Claim) -> dict[str, int]:
    """The claim and its rivals, by id, whose version is that of their registration."""
    then = registered(package_of(claim)).get(claim.id, {"rivals": {}})
    kept = {claim.id: then, **then["rivals"]}
    return {one.id: one.version for one in (claim, *claim.rivals)
            if kept.get(one.id, {}).get("version") == one.version}  # fmt: skip


def superseded(claim: Claim) -> tuple[Superseded, ...]:
    """Earlier forms of a claim, the oldest first."""
    entries = registered(package_of(claim)).get(claim.id, {}).get("superseded", [])
    return tuple(Superseded(reason=entry["reason"], **entry.get("verdict", {})) for entry in entries)


def register(
    claims: Sequence[Claim],
    directory: Path,
    *,
    reason: str | None = None,
    verdicts: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Add registrations to the file of a directory, that of the guest's package; return the ids of entries that
    changed.

    Each claim is judged on the seeds of its system. The directory is that of the guest's package.

    A registration that differs, in what decides or in its values, is superseded only with a `reason`. Where values are
    as registered, digests of code that moved are written anew. `verdicts` are records of earlier trials. A superseded
    form, now or before, keeps the verdict of the trial in which just that was fixed. A record that does not say what
    was fixed counts for the last. Raises InputError where a claim is registered otherwise and there is no reason, or
    the file cannot be read.
    """
    content, changed = registered(directory), []
    by_id = {record["id"]: record for record in verdicts}
    for claim in claims:
        before = content.get(claim.id, {})
        then = {name: entry for name, entry in before.items() if name != "superseded"}
        earlier = [{**entry} for entry in before.get("superseded", [])]
        now, different = _entry(claim, then, measured=reason is not None)
        if different and reason is None:
            raise InputError(
                f"claim {claim.id} is registered otherwise ({', '.join(different)}); a claim that was changed is "
                "another claim: give it another id, or say why with --supersede"
            )
        if different:
            earlier.append({"reason": reason, "registration": then})
        _add_verdict(earlier, by_id.get(claim.id))
        content[claim.id] = {**now, **({"superseded": earlier} if earlier else {})}
        if content[claim.id] != before:
            changed.append(claim.id)
    if changed:
        write_atomically(directory / FILE, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return changed


def _entry(claim: Claim, then: Mapping[str, Any], *, measured: bool) -> tuple[Mapping[str, Any], list[str]]:
    """The registration of a claim with its values, and in what it differs from an earlier one, if that is not empty.

    Values are measured unless nothing has changed, code neither; with a difference only where `measured` asks for it.
    """
    now = registration(claim, expected_seeds(claim))
    different = differences(now, then) if then else []
    if different and not measured:
        return now, different
    if VALUES in then and not different and not code_moved(now, then):
        return then, []
    values = behaviour([claim])
    for id, entry in {claim.id: now, **now["rivals"]}.items():
        entry[VALUES] = values.get(id, {})
    different = different or (_unlike(_distances(claim, values, then), then, anew=True) if then else [])
    return {**now, "machine": machine()}, different


def _add_verdict(earlier: Sequence[dict[str, Any]], record: Mapping[str, Any] | None) -> None:
    """Give the first superseded registration without a verdict that of a record, if just that was fixed in it."""
    if record is None or not earlier:
        return
    fixed = record.get("fixed", earlier[-1]["registration"])
    for entry in earlier:
        if "verdict" not in entry and not differences(entry["registration"], fixed):
            recipe = next((unit["recipe"] for unit in record["units"].values()), None)
            entry["verdict"] = {**{name: record[name] for name in ("outcome", "share", "n")}, "recipe": recipe}
            return
