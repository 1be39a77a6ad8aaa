"""Validation of entries: by the schema, field by field, and by what a claim has to be.

A claim must be able to lose: a margin that some possible effect misses and some clears, and a negative control. A
verdict must agree with its own numbers, count at most once, answer the question that is registered, and be called
confirmed only where the claim was registered before its runs.

*Does not show* that dates, numbers or sources are true.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from mnemoscope.claims.claim import MIN_REPLICATES
from mnemoscope.claims.entry import Criterion, Entry, Verdict, field_faults, parse_entry
from mnemoscope.core.errors import InputError
from mnemoscope.registry.importing import DECISIONS


def file_faults(files: Iterable[Path]) -> dict[Path, list[str]]:
    """The faults of files of entries, a line each that begins with the path of the field; empty lists for good files.

    Raises InputError for a file that cannot be read.
    """
    found: dict[Path, list[str]] = {}
    ids: dict[str, Path] = {}
    for file in files:
        try:
            text = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from None
        found[file] = field_faults(text)
        if found[file]:
            continue
        entry = parse_entry(text, str(file))
        found[file] = list(entry_faults(entry))
        if (other := ids.setdefault(entry.id, file)) != file:
            found[file].append(f"id: {entry.id} stands in {other} too; give one of them another version")
    return found


def entry_faults(entry: Entry) -> Iterator[str]:
    """The faults of an entry that follows the schema."""
    if not entry.criteria:
        yield "criteria: none; a claim needs a criterion that can be missed"
    for i, criterion in enumerate(entry.criteria):
        yield from (f"criteria.{i}.{fault}" for fault in _criterion_faults(criterion))
    if all(control.kind != "negative" for control in entry.controls):
        yield "controls: no negative control, so that nothing shows that the measure can miss"
    for name in ("criteria", "controls"):
        names = [each.name for each in getattr(entry, name)]
        if len(set(names)) < len(names):
            yield f"{name}: two of one name"
    dates = entry.registration.registered, entry.registration.runs
    if entry.registration.standing == "before its runs" and dates[0] is not None and dates[1] is not None:
        registered, runs = (datetime.fromisoformat(each.date) for each in dates if each is not None)
        if runs <= registered:
            yield "registration.standing: before its runs, but the runs are no later than the registration"
    counting = [i for i, verdict in enumerate(entry.verdicts) if verdict.superseded is None]
    if len(counting) > 1:
        yield f"verdicts: {len(counting)} count; all but one need a reason in `superseded`"
    for i, verdict in enumerate(entry.verdicts):
        yield from (f"verdicts.{i}.{fault}" for fault in _number_faults(verdict))
        if verdict.version > entry.version:
            yield f"verdicts.{i}.version: {verdict.version} is later than the claim's, {entry.version}"
        if i in counting:
            yield from (f"verdicts.{i}.{fault}" for fault in _counting_faults(entry, verdict))


def _criterion_faults(criterion: Criterion) -> Iterator[str]:
    low, high = (
        math.copysign(math.inf, sign) if bound is None else bound
        for sign, bound in zip((-1, 1), criterion.bounds or (None, None), strict=True)
    )
    margin = criterion.margin
    if not math.isfinite(margin):
        yield f"margin: must be a finite number; got {margin}"
    elif criterion.direction == "within" and margin <= 0:
        yield f"margin: must be positive in the direction within; got {margin:g}"
    elif not (margin < max(-low, high) if criterion.direction == "within" else low < margin < high):
        yield f"margin: {margin:g} cannot be {'missed' if criterion.direction == 'within' else 'missed or cleared'} "
    if not low < high:
        yield f"bounds: must be the smallest and the largest effect; got {criterion.bounds}"


def _number_faults(verdict: Verdict) -> Iterator[str]:
    if verdict.n_clear > verdict.n:
        yield f"n_clear: {verdict.n_clear} of {verdict.n} judged replicates"
    elif verdict.share is not None and verdict.n and abs(verdict.share - verdict.n_clear / verdict.n) > 1e-6:
        yield f"share: {verdict.share:g} is not {verdict.n_clear} of {verdict.n}"
    for name, value in (("share", verdict.share), ("effect", verdict.effect)):
        low, high = getattr(verdict, f"{name}_interval") or (None, None)
        if value is not None and ((low is not None and low > value) or (high is not None and high < value)):
            yield f"{name}_interval: {low} to {high} is not around {value:g}"


def _counting_faults(entry: Entry, verdict: Verdict) -> Iterator[str]:
    if verdict.question not in (None, entry.registration.question):
        yield "question: is not the registered one; supersede the verdict with a reason"
    if verdict.outcome in DECISIONS and verdict.n < MIN_REPLICATES:
        yield f"outcome: {verdict.outcome} by {verdict.n} replicates; a decision needs {MIN_REPLICATES}"
    if verdict.confirmed and entry.registration.standing != "before its runs":
        yield f"confirmed: true, but the registration is {entry.registration.standing}: its seeds were looked at before"
