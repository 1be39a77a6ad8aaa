"""Verification of evidence: files of runs beside their digests, and some of the kept measurements taken again.

Digests are compared whenever claims are tried. `mnemoscope claims verify` also measures a random share of what a store
keeps again, and notes the outcome in `verified.jsonl` of the store, with the digest of the measurements that it is
about; a verdict that rests on just these says so.

*Does not show* anything of the measurements that were not drawn: of n edited ones a tenth misses all with probability
.9 to the power of n, about.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from mnemoscope.claims.claim import Claim, Measured
from mnemoscope.claims.measures import MeasureCall, ModelWork, Work, do_work, merge_work, stamp_of
from mnemoscope.claims.replicates import AdmittedRuns
from mnemoscope.claims.store import entry_of, is_as_kept, read_entries, text_digest
from mnemoscope.core.errors import in_range, pluralise
from mnemoscope.models.derived import FileCheck, check_files, refuse_edited
from mnemoscope.run.executor import analyse_many

VERIFIED = "verified.jsonl"
"""The file of a store with a line per claim and verification."""
TOLERANCE = 1e-5
"""Difference of a measurement taken again, relative where numbers are above 1, that other machines may make."""


def check_run_files(admitted: AdmittedRuns) -> dict[Path, FileCheck]:
    """Compare the files of all runs that count with their digests; InputError names a file that was edited."""
    runs = {run.path: run for each in admitted.finished.values() for run in each.values()}
    checks = {path: check_files(path, run.label, run.spec.seed) for path, run in runs.items()}
    refuse_edited(checks.values())
    return checks


@dataclass(frozen=True, kw_only=True)
class Remeasured:
    """One kept measurement beside the same taken again; `difference` is infinite where other numbers are given."""

    name: str
    key: str
    difference: float

    @property
    def agrees(self) -> bool:
        """True if the two are equal up to rounding."""
        return self.difference <= TOLERANCE


def measure_again(
    work: Sequence[Work], store: Path, *, share: float, seed: int, jobs: int = 1
) -> tuple[list[Remeasured], int]:
    """Take a random share of the measurements that a store keeps of some work again; returns them, and all that are.

    At least one is taken where any is kept. Edited entries count as kept. Raises InputError for a share outside 0 to 1.
    """
    in_range("share", share, 0, 1)
    kept = {(piece.name, call): entry for piece in merge_work(work) for call, entry in kept_entries(piece, store)}
    n = min(len(kept), max(1, math.ceil(share * len(kept)))) if share else 0
    places = list(kept)
    drawn = [places[i] for i in np.random.default_rng(seed).choice(len(places), n, replace=False)] if n else []
    by_piece = {name: tuple(call for piece, call in drawn if piece == name) for name, _ in drawn}
    pieces = [replace(each, calls=by_piece[each.name]) for each in merge_work(work) if each.name in by_piece]
    slow = [piece for piece in pieces if isinstance(piece, ModelWork)]
    many = [piece for piece in pieces if not isinstance(piece, ModelWork)]
    again = [do_work(piece, store=None) for piece in slow]
    again += analyse_many(many, partial(do_work, store=None), jobs=jobs)
    found = []
    for piece, results in zip([*slow, *many], again, strict=True):
        for call in piece.calls:
            entry = kept[piece.name, call]
            apart = _difference(entry["measured"], results[call.key])
            found.append(Remeasured(name=piece.name, key=call.key, difference=apart))
    return found, len(kept)


def kept_entries(piece: Work, store: Path) -> Iterable[tuple[MeasureCall, Mapping]]:
    """The calls of a piece of work of which a store keeps the present result, with their entries."""
    entries = read_entries(store / f"{piece.name}.json")
    for call in piece.calls:
        entry = entries.get(call.key)
        if entry is not None and entry["stamp"] == stamp_of(piece, call):
            yield call, entry


def edited_entries(work: Sequence[Work], store: Path) -> list[str]:
    """The kept measurements whose digests do not match, as names of files with their keys."""
    found = []
    for piece in merge_work(work):
        for key, entry in read_entries(store / f"{piece.name}.json").items():
            if not is_as_kept(piece.name, key, entry):
                found.append(f"{store / piece.name}.json: {key}")
    return found


def _difference(kept: Mapping[str, float | list[float]], now: Measured) -> float:
    if kept.keys() != now.keys():
        return math.inf
    worst = 0.0
    for name, value in now.items():
        one, other = np.asarray(kept[name], dtype=float), np.asarray(value, dtype=float)
        if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return math.inf
        finite = np.isfinite(one)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return math.inf
        scale = np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)))[finite]
        worst = max(worst, float((np.abs(one - other)[finite] / scale).max(initial=0.0)))
    return worst


# ---- sentences on a verdict


def evidence_digest(work: Sequence[Work], store: Path) -> str:
    """The digest of all measurements that a store keeps for a claim; another one where any of them changed."""
    found = sorted(entry_of(piece.name, call.key, entry["stamp"], entry["measured"])["digest"]
                   for piece in merge_work(work) for call, entry in kept_entries(piece, store))  # fmt: skip
    return text_digest(" ".join(found))


def note_verified(claims: Mapping[str, Sequence[Work]], store: Path, sentence: str) -> None:
    """Note in a store that the evidence of some claims was verified, and how."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [{"claim": id, "evidence": evidence_digest(work, store), "found": sentence, "date": date}
             for id, work in claims.items()]  # fmt: skip
    store.mkdir(parents=True, exist_ok=True)
    with (store / VERIFIED).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def describe_verified(claim: Claim, files: Sequence[FileCheck], work: Sequence[Work], store: Path | None) -> str:
    """A sentence on what of the evidence for a claim was verified."""
    parts = [describe_files(files)] if files else []
    notes = _read_notes(store / VERIFIED) if store is not None else []
    mine = [note for note in notes if note["claim"] == claim.id]
    if store is not None and mine and mine[-1]["evidence"] == evidence_digest(work, store):
        parts.append(f"{mine[-1]['found']} ({mine[-1]['date'][:10]})")
    else:
        parts.append("no measurement was taken again (`mnemoscope claims verify`)")
    return "; ".join(parts)


def describe_files(files: Sequence[FileCheck]) -> str:
    """A clause on how many runs have files as their digests say."""
    same = sum(each.state == "same" for each in files)
    if same == len(files):
        return f"files of {pluralise(same, 'run')} are as their digests say"
    return f"files of {len(files) - same} of {pluralise(len(files), 'run')} have no digests and are unverified"


def _read_notes(file: Path) -> list[dict[str, str]]:
    """The notes of a store; a line that is cut short is left out."""
    notes = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            notes.append(json.loads(line))
        except ValueError:
            continue
    return notes
