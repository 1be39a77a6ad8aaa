"""Changes between two registries: claims that came and went, and verdicts that are others."""

from collections.abc import Mapping

from mnemoscope.claims.entry import Entry, Verdict
from mnemoscope.report.rulings.differences import outcome_text

CHANGES_HEADER = ("id", "what", "verdict", "reason")
"""Columns of the table of changes."""


def registry_changes(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> list[list[str]]:
    """A row for every claim with another verdict, another version, or in one registry only; by id without version.

    Numbers behind an equal outcome with equal counts are no change.
    """
    before, after = ({id.rpartition("@")[0]: entry for id, entry in each.items()} for each in (old, new))
    rows = []
    for id in dict.fromkeys((*before, *after)):
        pair = before.get(id), after.get(id)
        if row := _change(*pair):
            rows.append([id, *row])
    return rows


def _change(old: Entry | None, new: Entry | None) -> list[str] | None:
    if old is None or new is None:
        entry = old or new
        assert entry is not None
        return ["new claim" if old is None else "gone", _words(entry.verdict), ""]
    before, after = _words(old.verdict), _words(new.verdict)
    versions = f"version {old.version} → {new.version}" if old.version != new.version else ""
    if before == after and not versions:
        return None
    reasons = [each.superseded for each in new.verdicts if each.superseded and each not in old.verdicts]
    reasons += [each.reason for each in new.registration.superseded if each not in old.registration.superseded]
    verdict = before if before == after else f"{before} → {after}"
    return [
        ", ".join(filter(None, [versions, _kind(old.verdict, new.verdict)])),
        verdict,
        "; ".join(dict.fromkeys(reasons)),
    ]


def _kind(old: Verdict | None, new: Verdict | None) -> str:
    if old is None or new is None:
        return "" if old is new else "judged" if old is None else "no verdict any more"
    if old.outcome != new.outcome:
        return "another verdict"
    return "other counts" if (old.n_clear, old.n) != (new.n_clear, new.n) else ""


def _words(verdict: Verdict | None) -> str:
    return "not tried" if verdict is None else f"{outcome_text(verdict.outcome)}, {verdict.n_clear} of {verdict.n}"
