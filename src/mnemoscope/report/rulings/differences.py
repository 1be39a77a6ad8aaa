"""Differences between two trials of claims, and their wording, from records: plain data, without a model or a claim."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mnemoscope.core.errors import format_rounded


def format_number(value: float | None, form: str = ".4g") -> str:
    """A number; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return format_rounded(value, form).replace("inf", "∞")


def interval_text(value: float | None, low: float | None, high: float | None, unit: str = "", form: str = ".4g") -> str:
    """A number, its interval and its unit; None for a bound is infinity, None or NaN for the number a dash."""
    if value is None or math.isnan(value):
        return "–"
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return f"{format_number(value, form)} [{', '.join(format_number(bound, form) for bound in bounds)}] {unit}".strip()


def outcome_text(outcome: str) -> str:
    """An outcome in words: without the underscore."""
    return outcome.replace("_", " ")


DIFF_HEADER = ("id", "what", "verdict", "share", "effect")
"""Columns of the table of differences."""
_ARROW = " → "


def diff_rows(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Differences between two lists of records of rulings: claims, their rivals, and cells of the sensitivity table.

    Numbers differ if they do so as they are shown, `old` before the arrow and `new` behind it. Equal records give no
    row, nor do claims in one list only: a trial of some claims says nothing about the others.
    """
    old, new = list(old), list(new)
    both = {record["id"] for record in old} & {record["id"] for record in new}
    before, after = (_verdicts(record for record in records if record["id"] in both) for records in (old, new))
    rows = []
    for name in dict.fromkeys((*before, *after)):
        pair = before.get(name), after.get(name)
        if pair[0] == pair[1]:
            continue
        rows.append(
            [
                name,
                _kind_of_change(*pair),
                *(_describe_change(*cells) for cells in zip(*(_cells_or_blank(v) for v in pair), strict=True)),
            ]
        )
    return rows


def _verdicts(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Outcome, share and effect as they are shown, by id; the id of a cell goes on with `, kind = zero`."""
    shown = {}
    for record in records:
        shown[record["id"]] = _record_cells(record)
        shown |= {rival["id"]: _record_cells(rival) for rival in record["rivals"]}
        for cell in record["sensitivity"]:
            shown[f"{record['id']}, {cell['factor']} = {cell['value']}"] = _record_cells(cell)
    return shown


def _record_cells(record: Mapping[str, Any]) -> tuple[str, ...]:
    (low, high), bounds = record["share_interval"], record["effect_interval"]
    return (
        outcome_text(record["outcome"]),
        interval_text(record["share"], low, high, form=".2f"),
        interval_text(record["effect"], bounds[0], bounds[1], record["unit"]),
    )


def _cells_or_blank(verdict: tuple[str, ...] | None) -> tuple[str, ...]:
    return ("", "", "") if verdict is None else verdict


def _kind_of_change(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> str:
    if before is None or after is None:
        return "only in the new" if before is None else "only in the old"
    return "another verdict" if before[0] != after[0] else "other numbers"


def _describe_change(before: str, after: str) -> str:
    return before if before == after else _ARROW.join(text for text in (before, after) if text)
