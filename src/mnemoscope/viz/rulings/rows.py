"""Verdicts as rows, for the terminal and for files."""

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from mnemoscope.judging.verdict import Ruling
from mnemoscope.viz.rulings.asked import criterion
from mnemoscope.viz.rulings.differences import outcome_text
from mnemoscope.viz.rulings.words import (
    as_registered,
    effect_text,
    recipe_text,
    share_text,
    unit_of,
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
