"""Verdicts as rows, for the terminal and for files."""

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from mnemoscope.claims.evidence import as_dataset
from mnemoscope.claims.verdict import Ruling
from mnemoscope.report.rulings.asked import criterion, effect_name
from mnemoscope.report.rulings.differences import outcome_text
from mnemoscope.report.rulings.plots import by_case
from mnemoscope.report.rulings.words import (
    as_registered,
    effect_text,
    number,
    recipe_text,
    share_text,
    unit_of,
)
from mnemoscope.report.tables import Table, counted

VERDICT_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect", "registered", "why")
UNJUDGED_HEADER = ("id", "quantity", "mean [range]", "measured")
UNJUDGED = "measured where no replicate passes the gate; no verdict"
LONGEST = 72
"""Most characters of a statement on the terminal."""


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
            as_registered(ruling.departures, ruling.code),
            ruling.reason,
        ]
        for ruling in rulings
    ]


def unjudged_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """Claim, quantity, mean and range, and replicates of measurements where none passes the gate: no verdict rests on
    them.
    """
    return [
        [ruling.claim.id, name, text, counted(len(ruling.evidence.labels), ruling.evidence.replicate)]
        for ruling in rulings
        if ruling.verdict.n == 0
        for name, text in ranges(ruling, judged=False).items()
    ]


def ranges(ruling: Ruling, *, judged: bool) -> dict[str, str]:
    """Mean and range of all measurements by name, over the replicates that pass the gate or those that fail."""
    effects, found = ruling.evidence.effects, {}
    alone = None if isinstance(effects, xr.Dataset) else ruling.claim.criteria[0].name
    for name, effect in as_dataset(effects).data_vars.items():
        values = by_case(effect)[_passing(ruling) == judged]
        values = values[~np.isnan(values)]
        if values.size:
            unit = str(effect.attrs.get("unit", ""))
            spread = f" [{number(values.min())}, {number(values.max())}]" if values.size > 1 else ""
            found[effect_name(alone or str(name))] = f"{number(values.mean())}{spread} {unit}".strip()
    return found


def in_short(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Rows of verdicts for the terminal, which has no room for long statements."""
    return [[name, textwrap.shorten(said, LONGEST, placeholder=" …"), *others] for name, said, *others in rows]


def verdict_tables(rulings: Sequence[Ruling]) -> list[Table]:
    """Tables of rulings for files: verdicts, every effect of a claim by replicate, and unjudged measurements."""
    effects = []
    for ruling in rulings:
        for part, result in zip(ruling.claim.criteria, ruling.verdict.parts, strict=True):
            n = ruling.verdict.n
            cells = [share_text(result, n=n), effect_text(result, n=n, each=_judged(ruling, part.name))]
            effects.append(
                [ruling.claim.id, part.name, criterion(ruling.claim, part, unit_of(ruling, part.name)), *cells]
            )
    title, rows = "every effect that was judged", unjudged_rows(rulings)
    return [
        Table(name="verdicts", title="verdicts", header=VERDICT_HEADER, rows=verdict_rows(rulings), n_text=4),
        Table(name="effects", title=title, header=("id", "part", "must be", "share", "effect"), rows=effects, n_text=3),
        *([Table(name="unjudged", title=UNJUDGED, header=UNJUDGED_HEADER, rows=rows, n_text=2)] if rows else []),
    ]


def _judged(ruling: Ruling, name: str) -> xr.DataArray:
    """An effect over the replicates that were judged, means over prompts."""
    evidence, chosen = ruling.evidence, _passing(ruling)
    labels = {evidence.replicate: evidence.labels[chosen]}
    return xr.DataArray(evidence.sample(name, chosen).effects, dims=evidence.replicate, coords=labels)


def _passing(ruling: Ruling) -> np.ndarray:
    """The replicates that pass the gate."""
    evidence, gate = ruling.evidence, ruling.claim.gate
    return np.full(len(evidence.labels), True) if gate is None else gate.passes(evidence.gate)
