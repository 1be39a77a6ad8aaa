"""The display of an analysis of one configuration, in which models that learned nothing do not speak.

The finding is about models that beat every baseline of their task (`analyses.baselines`), and about the skills on which
they do. Where there is none, it says only that, so that no part of a guessing model is called needed. Tables and
figures leave out models that are no better than a constant guess, unless all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import ranges
from mnemoscope.records.record import GATE, Measured, Record

_NOT_BY_SKILL = ("roles",)
"""Results that say nothing by themselves, beside those of skills."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The display of the results of one configuration."""

    finding: str = ""
    """The finding, a sentence made from the numbers; it opens the page, and ends the printed output."""
    tables: Sequence[ms.report.Table]
    figures: Sequence[tuple[str, Any]]
    """Caption and plotly figure."""
    notes: Sequence[str] = ()
    """Sentences for the page: the results and their limits."""


def shown(record: Record, measured: Measured) -> Shown:
    """The tables, figures, finding and notes of a record for its measurements."""
    gate = measured.results[GATE]
    said = ms.report.findings.learned(gate)
    if gate.learned.any():
        learners = _of_seeds(measured, "learned")
        about = ms.analyses.of_learned_skills(learners.results)
        if about.keys() - {GATE, *_NOT_BY_SKILL}:
            said = f"{said} {record.finding(replace(learners, results=about))}".strip()
    there, guessing = _of_seeds(measured, "above_chance"), ~gate.above_chance.any("skill")
    notes = [*record.limits, *record.notes(there)]
    if guessing.any():
        seeds = ranges([int(seed) for seed in gate.seed.values[guessing.values]])
        where = "" if guessing.all() else " They are in the arrays, not in tables and figures."
        notes.insert(0, f"Not better than a constant guess on any skill: seeds {seeds}.{where}")
    return Shown(finding=said, tables=record.tables(there), figures=record.figures(there), notes=notes)


def _of_seeds(measured: Measured, level: Literal["learned", "above_chance"]) -> Measured:
    """The same measurements for the seeds that reach a level on some skill, or for all if none does."""
    reached = measured.results[GATE][level].any("skill").values
    runs = [run for run, there in zip(measured.runs, reached, strict=True) if there or not reached.any()]
    return replace(measured, results=ms.analyses.of_learners(measured.results, level), runs=runs)
