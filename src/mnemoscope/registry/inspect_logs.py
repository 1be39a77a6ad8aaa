"""Verdicts as evaluation logs of Inspect (`inspect-ai`), beside those of other evaluations: one log a system.

Each claim with a verdict is a sample: its statement is the input, the target is SUPPORTED, the score `verdict` is the
outcome, and `share` is the share of replicates that meet the criteria. The format is version 2 of `EvalLog`, which
inspect-ai 0.3.285 reads; https://inspect.aisi.org.uk/eval-logs.html describes it.

*Does not show* an evaluation that Inspect ran: no model was called, and there are no messages. The outcome is not made
a number, as INCONCLUSIVE is not a failure of the claim.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mnemoscope.claims.entry import Entry, Verdict
from mnemoscope.claims.intervals import share_interval

VERSION = 2
"""Version of the format of logs."""
_TARGET = "SUPPORTED"
_SCORER = "mnemoscope"


def inspect_logs(entries: Iterable[Entry], library: str) -> dict[str, dict[str, Any]]:
    """The logs by package and system, such as `mnemo-tiny-recall`, as plain data.

    Args:
        entries: Claims; those without a verdict that counts are left out.
        library: Version of this library, which the logs name.
    """
    groups: dict[str, list[tuple[Entry, Verdict]]] = {}
    for entry in entries:
        if entry.verdict is not None:
            name = entry.id.partition("/")[0].replace(":", "-")
            groups.setdefault(name, []).append((entry, entry.verdict))
    return {name: _log(name, judged, library) for name, judged in groups.items()}


def _log(name: str, judged: list[tuple[Entry, Verdict]], library: str) -> dict[str, Any]:
    dates = [verdict.judged.date for _, verdict in judged if verdict.judged]
    created = _moment(max(dates)) if dates else datetime.now(UTC).isoformat(timespec="seconds")
    counts = Counter(verdict.outcome for _, verdict in judged)
    metrics = {outcome: {"name": outcome, "value": n} for outcome, n in sorted(counts.items())}
    ids = [entry.id for entry, _ in judged]
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": name,
            "run_id": name,
            "task_id": name,
            "created": created,
            "task": name,
            "task_version": 0,
            "dataset": {"name": f"claims of {name}", "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": f"{_SCORER}/{judged[0][0].system}",
            "config": {},
            "packages": {"mnemoscope": library},
            "metadata": {"note": "Verdicts of trials over replicates; Inspect called no model."},
        },
        "results": {
            "total_samples": len(ids),
            "completed_samples": len(ids),
            "scores": [{"name": "verdict", "scorer": _SCORER, "scored_samples": len(ids), "metrics": metrics}],
        },
        "samples": [_sample(entry, verdict) for entry, verdict in judged],
    }


def _sample(entry: Entry, verdict: Verdict) -> dict[str, Any]:
    judged = f"{verdict.n_clear} of {verdict.n} {entry.replicate}s meet the criteria"
    fields = verdict.model_dump(mode="json", exclude_none=True)
    found: dict[str, Any] = {
        "verdict": {"value": verdict.outcome, "answer": verdict.outcome, "explanation": judged, "metadata": fields}
    }
    if verdict.n:
        bounds = share_interval(verdict.n_clear, verdict.n)
        interval = {"interval": [bounds.low, bounds.high], "level": 0.95}
        found["share"] = {"value": verdict.n_clear / verdict.n, "explanation": judged, "metadata": interval}
    return {
        "id": entry.id,
        "epoch": 1,
        "input": entry.statement,
        "target": _TARGET,
        "scores": found,
        "metadata": {
            "source": entry.source.model_dump(mode="json", exclude_none=True),
            "kind": entry.kind,
            "methods": list(entry.methods),
            "criteria": [each.model_dump(mode="json", exclude_none=True) for each in entry.criteria],
            "configurations": [each.model_dump(mode="json") for each in entry.configurations],
            "registration": entry.registration.digest,
            "standing": entry.registration.standing,
        },
    }


def _moment(date: str) -> str:
    """A date, or a moment, as a moment with its time zone."""
    moment = datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat(timespec="seconds")
