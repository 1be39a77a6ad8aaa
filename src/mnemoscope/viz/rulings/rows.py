"""Verdicts as rows: for the terminal and for files, and what differs between two trials."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.judging.verdict import Ruling
from mnemoscope.viz.rulings.asked import criterion
from mnemoscope.viz.rulings.words import (
    as_registered,
    effect_text,
    outcome_text,
    recipe_text,
    share_text,
    unit_of,
    with_interval,
)
from mnemoscope.viz.tables import Table

VERDICT_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect", "registered", "why")
LONGEST = 72
"""Characters of a statement on the terminal."""


def verdict_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """For every ruling: id, statement, outcome, recipe of the models, share and effect with 95 % intervals, whether it
    is as registered, and the reason.
    """
    return [
        [
            ruling.claim.id,
            ruling.claim.statement,
            outcome_text(ruling.verdict.outcome),
            recipe_text(ruling.claim),
            share_text(ruling.verdict, n=ruling.verdict.n),
            effect_text(ruling.verdict, n=ruling.verdict.n),
            as_registered(ruling),
            ruling.reason,
        ]
        for ruling in rulings
    ]


def in_short(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Rows of verdicts for the terminal, which has no room for long statements."""
    return [[name, textwrap.shorten(said, LONGEST, placeholder=" …"), *others] for name, said, *others in rows]


def verdict_tables(rulings: Sequence[Ruling]) -> list[Table]:
    """What files hold of rulings: the verdicts, and every effect that a claim is made of, replicate by replicate."""
    effects = []
    for ruling in rulings:
        for part, result in zip(ruling.claim.criteria, ruling.verdict.parts, strict=True):
            n = ruling.verdict.n
            cells = [share_text(result, n=n), effect_text(result, n=n, each=_judged(ruling, part.name))]
            effects.append(
                [ruling.claim.id, part.name, criterion(ruling.claim, part, unit_of(ruling, part.name)), *cells]
            )
    title = "every effect that was judged"
    return [
        Table(name="verdicts", title="verdicts", header=VERDICT_HEADER, rows=verdict_rows(rulings), n_text=4),
        Table(name="effects", title=title, header=("id", "part", "must be", "share", "effect"), rows=effects, n_text=3),
    ]


def _judged(ruling: Ruling, name: str) -> xr.DataArray:
    """An effect over the replicates that were judged, means over prompts."""
    evidence, gate = ruling.evidence, ruling.claim.gate
    chosen = np.full(len(evidence.labels), True) if gate is None else gate.passes(evidence.gate)
    labels = {evidence.replicate: evidence.labels[chosen]}
    return xr.DataArray(evidence.sample(name, chosen).effects, dims=evidence.replicate, coords=labels)


DIFF_HEADER = ("id", "what", "verdict", "share", "effect")
_ARROW = " → "


def diff_rows(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """What differs between two lists of records of rulings: claims, their rivals, and cells of the sensitivity table.

    Numbers differ if they do so as they are shown. What is alike is left out: no rows, no difference. So are claims
    that are in one list only: a trial of some claims says nothing of the others.

    Args:
        old: What stands before the arrows.
        new: What stands behind them.
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
            [name, _what(*pair), *(_change(*cells) for cells in zip(*(_or_blank(v) for v in pair), strict=True))]
        )
    return rows


def _verdicts(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Outcome, share and effect as they are shown, by id; that of a cell goes on with `, kind = zero`."""
    shown = {}
    for record in records:
        shown[record["id"]] = _shown(record)
        shown |= {rival["id"]: _shown(rival) for rival in record["rivals"]}
        for cell in record["sensitivity"]:
            shown[f"{record['id']}, {cell['factor']} = {cell['value']}"] = _shown(cell)
    return shown


def _shown(record: Mapping[str, Any]) -> tuple[str, ...]:
    (low, high), bounds = record["share_interval"], record["effect_interval"]
    return (
        outcome_text(record["outcome"]),
        with_interval(record["share"], low, high, form=".2f"),
        with_interval(record["effect"], bounds[0], bounds[1], record["unit"]),
    )


def _or_blank(verdict: tuple[str, ...] | None) -> tuple[str, ...]:
    return ("", "", "") if verdict is None else verdict


def _what(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> str:
    if before is None or after is None:
        return "only in the new" if before is None else "only in the old"
    return "another verdict" if before[0] != after[0] else "other numbers"


def _change(before: str, after: str) -> str:
    return before if before == after else _ARROW.join(text for text in (before, after) if text)
