"""Entries of the registry from claims in code.

All that the code, the registrations and the history of git say is written anew. What people write by hand (paper and
place of the source, kind, methods, verdicts, replications, notes) is kept from the entry on file. A registration that
took the place of another leaves the verdict of the earlier form as a superseded one, with the reason.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.criterion import Criterion as ClaimCriterion
from mnemoscope.claims.entry import (
    FOLDER,
    Configuration,
    Control,
    Criterion,
    Dated,
    EarlierForm,
    Entry,
    Gate,
    Registration,
    Rival,
    Source,
    Verdict,
    entry_of,
    write_entry,
)
from mnemoscope.claims.registration import VALUES, package_of, read_registrations, registration
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.claims.standing import Dates, dates_in, question_of, standing
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.report.rulings.words import find_quantity, required_control_result

OWN = "mnemo"
"""The first part of the ids of this package."""
_NOT_FIXED = (VALUES, "machine", "registered", "superseded")
"""Entries of a registration that fix nothing."""


def export_entry(claim: Claim, before: Entry | None = None, dates: Dates | None = None) -> Entry:
    """The entry of a claim.

    Args:
        claim: As it stands in the code.
        before: Its entry on file, of which all that is written by hand is kept; None: there is none.
        dates: Of its registration and runs; None: those on file, if they are of the same question.

    Raises:
        InputError: The id of the claim or of its system cannot be a part of a global id.

    >>> claim = ms.Claim(id="sure", statement="Runs are sure.", source="ours", quantifier="most", margin=0.9)
    >>> ms.registry.export_entry(claim).id
    'mnemo:none/sure@1'
    """
    registered = read_registrations(package_of(claim)).get(claim.id)
    fixed = registered or registration(claim, expected_seeds(claim))
    explanation = claim.explanation
    verdicts = () if before is None else before.verdicts
    try:
        return Entry(
            id=f"{_package_name(claim)}:{claim.system or 'none'}/{claim.id}@{claim.version}",
            statement=claim.statement,
            source=Source(
                text=claim.source,
                paper=None if before is None else before.source.paper,
                place="" if before is None else before.source.place,
            ),
            system=claim.system,
            kind=None if before is None else before.kind,
            methods=() if before is None else before.methods,
            configurations=tuple(_configuration(name, unit) for name, unit in fixed["units"].items()),
            replicate=claim.replicate,
            n_replicates=claim.n_replicates,
            headline=claim.headline,
            seeds=tuple(fixed["seeds"]),
            prompts=claim.prompts or "",
            gate=_gate(claim),
            joined=claim.joined,
            criteria=_criteria(claim),
            procedure="" if explanation is None else explanation.procedure,
            margins="" if explanation is None else explanation.margins,
            limits="" if explanation is None else explanation.limits,
            controls=tuple(
                Control(
                    name=control.name,
                    kind=control.kind,
                    n=control.n,
                    tolerated=control.tolerated,
                    expected=required_control_result(claim, control),
                )
                for control in claim.controls
            ),
            rivals=tuple(Rival(id=r.id, statement=r.statement, criteria=_criteria(r)) for r in claim.rivals),
            factors={name: tuple(map(str, values)) for name, values in claim.factors.items()},
            registration=_registration(fixed, registered, dates or dates_in(before)),
            verdicts=_with_earlier_forms(verdicts, fixed),
            replications=() if before is None else before.replications,
            notes="" if before is None else before.notes,
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"claim {claim.id} has no entry: {where}: {first['msg']}; got {first['input']!r}") from None


def refresh_entries(
    claims: Iterable[Claim], dates: Mapping[str, Dates], commits: Mapping[tuple[str, str], str]
) -> list[tuple[Path, Entry]]:
    """Write the entries of claims to the registries of their packages.

    Args:
        claims: Each of some package.
        dates: By id, those of the history.
        commits: The first commit with each verdict, by id and date; a verdict that names its commit keeps it.

    Raises:
        InputError: A claim belongs to no package.
    """
    written = []
    for claim in claims:
        package = package_of(claim)
        if package is None:
            raise InputError(f"claim {claim.id} belongs to no package, whose registry could hold it; leave it out")
        entry = export_entry(claim, entry_of(package, claim.id), dates.get(claim.id))
        verdicts = tuple(_with_commit(verdict, claim.id, commits) for verdict in entry.verdicts)
        entry = entry.model_copy(update={"verdicts": verdicts})
        written.append((write_entry(entry, package / FOLDER), entry))
    return written


def _with_commit(verdict: Verdict, id: str, commits: Mapping[tuple[str, str], str]) -> Verdict:
    judged = verdict.judged
    if judged is None or judged.commit is not None:
        return verdict
    return verdict.model_copy(update={"judged": Dated(date=judged.date, commit=commits.get((id, judged.date)))})


def registration_digest(fixed: Mapping[str, Any]) -> str:
    """SHA-256, 16 digits, of all that a registration fixes, rivals and code included."""
    kept = {name: value for name, value in fixed.items() if name not in _NOT_FIXED}
    kept["rivals"] = {id: registration_digest(rival) for id, rival in fixed["rivals"].items()}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _package_name(claim: Claim) -> str:
    """The first part of a global id: the package of the measure, `mnemo` for ours and for none."""
    package = package_of(claim)
    owner = next((guest for guest in guests.guests() if package and guests.location(guest) == package), "mnemoscope")
    top = owner.partition(".")[0]
    return OWN if top == "mnemoscope" else top.replace("_", "-").lower()


def _configuration(name: str, unit: Mapping[str, Any]) -> Configuration:
    given = {what: unit[what] for what in ("preset", "recipe", "changes")}
    return Configuration(name=name, digest=unit["configuration"], **given)


def _gate(claim: Claim) -> Gate | None:
    if claim.gate is None:
        return None
    low, high = (bound if abs(bound) < float("inf") else None for bound in (claim.gate.at_least, claim.gate.at_most))
    return Gate(statement=claim.gate.statement, at_least=low, at_most=high)


def _criteria(claim: Claim) -> tuple[Criterion, ...]:
    return tuple(_criterion(claim, part) for part in claim.criteria)


def _criterion(claim: Claim, part: ClaimCriterion) -> Criterion:
    quantity = find_quantity(claim, part.name)
    low, high = (bound if abs(bound) < float("inf") else None for bound in part.limits)
    return Criterion(
        name=part.name,
        words="" if quantity is None else quantity.words,
        formula="" if quantity is None else quantity.formula,
        unit=part.unit,
        quantifier=part.quantifier,
        margin=part.margin,
        direction=part.direction,
        bounds=None if (low, high) == (None, None) else (low, high),
    )


def _registration(fixed: Mapping[str, Any], registered: Mapping[str, Any] | None, dates: Dates | None) -> Registration:
    question = question_of(fixed)
    dates = dates if dates is not None and dates.question == question else None
    forms = fixed.get("superseded", ())
    return Registration(
        digest=registration_digest(fixed),
        question=question,
        code=fixed["code"],
        registered=None if dates is None else dates.registered,
        runs=None if dates is None else dates.runs,
        standing=standing(registered, dates, None).status,
        superseded=tuple(
            EarlierForm(
                version=form["registration"].get("version") or 1,
                question=question_of(form["registration"]),
                reason=form["reason"],
            )
            for form in forms
        ),
    )


def _with_earlier_forms(verdicts: tuple[Verdict, ...], fixed: Mapping[str, Any]) -> tuple[Verdict, ...]:
    """Verdicts with those of superseded registrations, each before the ones that came later."""
    found, now = list(verdicts), question_of(fixed)
    for form in fixed.get("superseded", ()):
        question, reason = question_of(form["registration"]), form["reason"]
        if any((each.question, each.superseded) == (question, reason) for each in found):
            continue
        counting = [i for i, each in enumerate(found) if each.superseded is None]
        if counting and question == found[counting[0]].question != now:
            found[counting[0]] = found[counting[0]].model_copy(update={"superseded": reason})
        elif verdict := form.get("verdict"):
            earlier = Verdict(
                outcome=verdict["outcome"],
                n_clear=round((verdict["share"] or 0) * verdict["n"]),
                n=verdict["n"],
                share=verdict["share"],
                recipe=verdict["recipe"] or "",
                version=form["registration"].get("version") or 1,
                question=question,
                superseded=reason,
            )
            found.insert(counting[0] if counting else len(found), earlier)
    return tuple(found)
