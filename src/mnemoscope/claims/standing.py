"""Standing of a claim: registered before its runs, after them, or not at all; only the first can be confirmed.

The entry of a claim in the registry of its package holds the dates of both in the history of git, as `mnemoscope dev
entries` finds them (`claims.history`). Where there is no history, the date that `dev register` wrote into
the registration and those that training wrote into run.json are compared. Runs that did not come with the package have
dates of their own.

*Does not show* that nobody looked at runs before they were committed, nor that a history was not rewritten.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.entry import Dated, Entry, entry_of
from mnemoscope.claims.registration import REGISTERED, package_of, read_registrations
from mnemoscope.models.glance import read_run_file
from mnemoscope.models.run import Run
from mnemoscope.models.zoo import WORD

_QUESTION = ("criteria", "joined", "gate", "replicates", "seeds", "prompts")


@dataclass(frozen=True, kw_only=True)
class Dates:
    """When a question was registered and the first of its runs came, by the digest of the question."""

    question: str
    registered: Dated
    runs: Dated | None = None


def dates_in(entry: Entry | None) -> Dates | None:
    """The dates in an entry; None where it has none."""
    if entry is None or (registered := entry.registration.registered) is None:
        return None
    return Dates(question=entry.registration.question, registered=registered, runs=entry.registration.runs)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The standing of a claim, with the dates of its registration and of the first of its runs where they are known."""

    status: Literal["before its runs", "after its runs", "not dated", "not registered"] = "not registered"
    registered: str = ""
    runs: str = ""

    @property
    def can_confirm(self) -> bool:
        """True if a verdict may be called confirmed."""
        return self.status == "before its runs"

    def __str__(self) -> str:
        if self.status == "not registered":
            return "not registered, so the verdict is exploratory and not confirmed"
        if self.status == "not dated":
            return "registered, with no dates that say whether before its runs, so the verdict is not confirmed"
        if not self.runs:
            return f"registered on {_day(self.registered)}, before any verdict"
        dates = f"on {_day(self.registered)}, runs of {_day(self.runs)}"
        if self.can_confirm:
            return f"registered before its runs ({dates})"
        return f"registered after its runs ({dates}), so the verdict is exploratory and not confirmed"


NOT_REGISTERED = Standing()


def question_of(registration: Mapping[str, Any]) -> str:
    """The digest of a question: criteria, gate, replicates, seeds, prompts, configurations, version of the measure.

    Code, rivals, factors and controls are no part of it: they were added to some claims later.
    """
    units = {name: [unit[part] for part in ("preset", "recipe", "changes")]
             for name, unit in registration["units"].items()}  # fmt: skip
    asked = {**{name: registration.get(name) for name in _QUESTION}, "units": units}
    if registration.get("version", 1) > 1:
        asked["version"] = registration["version"]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def standing(registration: Mapping[str, Any] | None, dates: Dates | None, runs: Sequence[Run] | None) -> Standing:
    """The standing of a claim from its registration, its dates in the history, and the runs that it is judged on.

    None stands for the runs of the package.
    """
    if registration is None:
        return NOT_REGISTERED
    if dates is not None and dates.question != question_of(registration):
        dates = None
    registered = registration.get(REGISTERED, "") if dates is None else dates.registered.date
    packed = "" if dates is None or dates.runs is None else dates.runs.date
    found = [packed] if runs is None else [packed if _is_packed(run) else _created(run) for run in runs]
    if not registration["units"]:
        found = [packed]
        if registered and not packed and not (dates is None and registration.get("superseded")):
            return Standing(status="before its runs", registered=registered)
    if not registered or not found or not all(found):
        return Standing(status="not dated", registered=registered)
    first = min(found, key=datetime.fromisoformat)
    before = datetime.fromisoformat(registered) < datetime.fromisoformat(first)
    return Standing(status="before its runs" if before else "after its runs", registered=registered, runs=first)


def claim_standing(claim: Claim, runs: Sequence[Run] | None) -> Standing:
    """The standing of a claim that is judged on these runs; None stands for the runs of the package."""
    place = package_of(claim)
    return standing(read_registrations(place).get(claim.id), dates_in(entry_of(place, claim.id)), runs)


def _is_packed(run: Run) -> bool:
    """True for a run that came with a package and was unpacked."""
    return WORD in run.path.parts[-4:-3]


def _created(run: Run) -> str:
    """The date on which a run directory was made; empty for runs from before it was written down."""
    return read_run_file(run.path).get("created", "")


def _day(date: str) -> str:
    return date[:16].replace("T", " ")
