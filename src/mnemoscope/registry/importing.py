"""Verdicts of trials, and replications, into entries.

A record of `claims run` answers the question that its field `fixed` holds. It goes into the entry that asks the same.
An equal outcome fills in the numbers of the verdict that counts. Another one takes its place only with a reason, and
the earlier verdict stays as a superseded one. A replication stands beside verdicts and changes none.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from mnemoscope.claims.entry import Dated, Entry, PartFinding, Replication, Verdict
from mnemoscope.claims.quantifiers import LEVEL
from mnemoscope.claims.standing import question_of
from mnemoscope.core.errors import InputError

DECISIONS = ("SUPPORTED", "REFUTED")
"""Outcomes that decide."""


def with_verdict(entry: Entry, record: Mapping[str, Any], *, reason: str = "", report: str = "") -> Entry:
    """The entry with the verdict of a trial.

    Args:
        entry: Of the claim that was tried.
        record: As `ms.claims.ruling_record` gives it, and `claims run` writes it.
        reason: Why an earlier verdict with another outcome, or on another question, no longer counts.
        report: Place that tells more; empty: that of the earlier verdict.

    Raises:
        InputError: The trial was of another question, it has no verdict, or it takes the place of another outcome and
            there is no reason.

    >>> entry = next(iter(ms.registry.read_registry().values()))
    >>> ms.registry.with_verdict(entry, {"id": "T14", "outcome": "SUPPORTED", "n": 32})
    Traceback (most recent call last):
    mnemoscope.core.errors.InputError: the record of T14 does not say what was fixed; try the claim again
    """
    if "fixed" not in record:
        raise InputError(f"the record of {record['id']} does not say what was fixed; try the claim again")
    if record["outcome"] == "NOT_APPLICABLE":
        raise InputError(f"the trial of {record['id']} gave no verdict ({record['reason']}); leave it out")
    if question_of(record["fixed"]) != entry.registration.question:
        raise InputError(
            f"the trial of {record['id']} was of another question than {entry.id} asks: other criteria, seeds or "
            "configurations; try the claim as it is registered"
        )
    before = entry.verdict
    found = _verdict(record, entry, report)
    kept = list(entry.verdicts)
    if before is not None and (before.outcome, before.question) == (found.outcome, found.question):
        same = ("judged", "report", "asked_of") if not report else ("judged", "asked_of")
        kept[kept.index(before)] = found.model_copy(
            update={name: value for name in same if (value := getattr(before, name))}
        )
        return entry.model_copy(update={"verdicts": tuple(kept)})
    if before is not None:
        if not reason:
            raise InputError(
                f"{entry.id} is {before.outcome} on record, and {found.outcome} in this trial; say with --reason why "
                "the earlier verdict no longer counts"
            )
        kept[kept.index(before)] = before.model_copy(update={"superseded": reason})
    return entry.model_copy(update={"verdicts": (*kept, found)})


def with_replication(entry: Entry, record: Mapping[str, Any]) -> Entry:
    """The entry with a replication: the fields of `Replication`, and the `claim`. It takes the place of one by the same
    code.

    Raises InputError where a field is missing or wrong.

    >>> entry = next(iter(ms.registry.read_registry().values()))
    >>> ms.registry.with_replication(entry, {"claim": "T14", "outcome": "REFUTED"})
    Traceback (most recent call last):
    mnemoscope.core.errors.InputError: the replication of T14 is at fault: by: Field required
    """
    try:
        found = Replication(**{name: value for name, value in record.items() if name != "claim"})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"the replication of {record['claim']} is at fault: {where}: {first['msg']}") from None
    others = tuple(each for each in entry.replications if each.code != found.code)
    return entry.model_copy(update={"replications": (*others, found)})


def _verdict(record: Mapping[str, Any], entry: Entry, report: str) -> Verdict:
    """The verdict in a record; records from before they named the deciding part are told it by its effect."""
    parts = tuple(_finding(part) for part in record["parts"])
    by_name = {part.name: part for part in parts}
    alike = [part.name for part in parts if part.effect is not None and part.effect == record["effect"]]
    deciding = record.get("deciding") or next(iter(alike), "")
    n = record["n"]
    return Verdict(
        outcome=record["outcome"],
        n_clear=record.get("n_clear", round((record["share"] or 0) * n)),
        n=n,
        n_failed=record["n_failed"],
        share=record["share"],
        share_interval=record["share_interval"],
        effect=record["effect"],
        effect_interval=record["effect_interval"],
        unit=record["unit"],
        sd=by_name[deciding].sd if deciding in by_name else None,
        deciding=deciding,
        p=record["p"],
        error_rate=LEVEL if record["outcome"] in DECISIONS else None,
        false_discovery_rate=record["false_discovery_rate"],
        parts=parts,
        rivals={rival["id"]: rival["outcome"] for rival in record["rivals"]},
        recipe=record["recipe"] or "",
        asked_of=", ".join(record["models"]),
        version=entry.version,
        question=entry.registration.question,
        confirmed=record["confirmed"],
        report=report,
        judged=Dated(date=datetime.now(UTC).isoformat(timespec="seconds")),
    )


def _finding(part: Mapping[str, Any]) -> PartFinding:
    names = ("name", "share", "share_interval", "effect", "effect_interval")
    return PartFinding(**{name: part[name] for name in names}, sd=part.get("sd"))
