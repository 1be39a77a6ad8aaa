"""Registrations that are kept: `registered.json` in the package of the guest that a claim's measure belongs to.

The file is committed with the claims. A registration that takes the place of another keeps it under `superseded`, with
the reason and the verdict that it led to.

*Does not show* that a registration is older than the runs; the history of the file does.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import Claim
from mnemoscope.judging.registration import differences, expected_seeds, registration
from mnemoscope.judging.verdict import Superseded
from mnemoscope.models.files import write_atomically

FILE = "registered.json"
"""Registrations by the id of the claim."""


def registered(directory: Path | None) -> dict[str, dict[str, Any]]:
    """Registrations by id in the file of a directory; none where there is no file.

    Raises:
        InputError: The file cannot be read.
    """
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


def departures(claim: Claim, seeds: Sequence[int]) -> tuple[str, ...] | None:
    """What of a claim is not as it was registered; None where nothing is registered.

    Args:
        claim: With a measure.
        seeds: Those that it is judged on.

    Raises:
        InputError: As `registered`.
    """
    then = registered(package_of(claim)).get(claim.id)
    return None if then is None else tuple(differences(registration(claim, seeds), then))


def superseded(claim: Claim) -> tuple[Superseded, ...]:
    """How a claim was asked before, the oldest first.

    Raises:
        InputError: As `registered`.
    """
    entries = registered(package_of(claim)).get(claim.id, {}).get("superseded", [])
    return tuple(Superseded(reason=entry["reason"], **entry.get("verdict", {})) for entry in entries)


def register(
    claims: Sequence[Claim],
    directory: Path,
    *,
    reason: str | None = None,
    verdicts: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Add registrations to the file of a directory.

    Args:
        claims: Each judged on the seeds of its system.
        directory: Of the guest's package.
        reason: Why a registration that differs is superseded; none: it is not.
        verdicts: Records of earlier trials: what is superseded, now or before, keeps the verdict of the trial in which
            just that was fixed. A record that does not say what was fixed counts for the last.

    Returns:
        The ids of claims that were not registered, or not like this, or to which an earlier verdict was added.

    Raises:
        InputError: A claim is registered otherwise and there is no reason, or the file cannot be read.
    """
    content, changed = registered(directory), []
    by_id = {record["id"]: record for record in verdicts}
    for claim in claims:
        then, now = content.get(claim.id), registration(claim, expected_seeds(claim))
        different = [] if then is None else differences(now, then)
        if different and reason is None:
            raise InputError(
                f"claim {claim.id} is registered otherwise ({', '.join(different)}); a claim that was changed is "
                "another claim: give it another id, or say why with --supersede"
            )
        earlier = [] if then is None else then.pop("superseded", [])
        if different:
            earlier.append({"reason": reason, "registration": then})
        content[claim.id] = {**now, **({"superseded": earlier} if earlier else {})}
        if _add_verdict(earlier, by_id.get(claim.id)) or different or then is None:
            changed.append(claim.id)
    if changed:
        write_atomically(directory / FILE, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return changed


def _add_verdict(earlier: Sequence[dict[str, Any]], record: Mapping[str, Any] | None) -> bool:
    """Whether a superseded registration without a verdict was given that of a record."""
    if record is None or not earlier:
        return False
    fixed = record.get("fixed", earlier[-1]["registration"])
    for entry in earlier:
        if "verdict" not in entry and not differences(entry["registration"], fixed):
            recipe = next((unit["recipe"] for unit in record["units"].values()), None)
            entry["verdict"] = {**{name: record[name] for name in ("outcome", "share", "n")}, "recipe": recipe}
            return True
    return False
