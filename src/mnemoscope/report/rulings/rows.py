"""Rows and tables of rulings, for the terminal, the page and files."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import numpy as np
import xarray as xr

from mnemoscope.analyses import describe_rank
from mnemoscope.claims.evidence import as_dataset
from mnemoscope.claims.ruling import Ruling
from mnemoscope.report.rulings.differences import format_number, outcome_text
from mnemoscope.report.rulings.words import (
    case_means,
    effect_name,
    effect_text,
    effect_unit,
    format_criterion,
    outcome_in_short,
    recipe_text,
    share_text,
    standing_word,
)
from mnemoscope.report.tables import Table, pluralise

VERDICT_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect", "registered", "why")
"""Columns of the table of verdicts."""
UNJUDGED_HEADER = ("id", "quantity", "mean [range]", "measured")
"""Columns of the table of quantities without a verdict."""
ORIGINALS_HEADER = ("id", "original", "quantity", "value", "seeds, mean [range]", "place among the seeds")
"""Columns of the table of published models."""
ORIGINALS = "published models beside the judged seeds; no verdict rests on them"
"""Title of the table of published models."""
UNJUDGED = "measured where no replicate passes the gate; no verdict"
"""Title of the table of quantities without a verdict."""
LONGEST = 72
"""Most characters of a statement on the terminal."""


def verdict_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """For every ruling: id, statement, outcome, recipe of the models, share and effect with 95 % intervals, whether it
    is as registered (`verdicts.json` names the differences), and the reason.
    """
    return [
        [
            ruling.claim.id,
            ruling.claim.statement,
            outcome_in_short(ruling.claim, ruling.verdict),
            recipe_text(ruling.claim),
            share_text(ruling.verdict, n=ruling.verdict.n),
            effect_text(ruling.verdict, n=ruling.verdict.n),
            standing_word(ruling),
            ruling.reason,
        ]
        for ruling in rulings
    ]


def unjudged_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """Claim, quantity, mean and range, and replicates of measurements where none passes the gate: no verdict rests on
    them.
    """
    return [
        [ruling.claim.id, name, text, pluralise(len(ruling.evidence.labels), ruling.evidence.replicate)]
        for ruling in rulings
        if ruling.verdict.n == 0
        for name, text in format_ranges(ruling, judged=False).items()
    ]


def original_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """Quantities of claims on published models: value, the judged seeds, and the rank among them."""
    return [
        [
            ruling.claim.id,
            " and ".join(PurePath(file).stem for file in each.file.split(" and ")),
            effect_name(each.quantity),
            format_number(each.value),
            f"{format_number(each.mean)} [{format_number(each.low)}, {format_number(each.high)}]",
            describe_rank(each.rank, each.n),
        ]
        for ruling in rulings
        for each in ruling.originals
    ]


def format_ranges(ruling: Ruling, *, judged: bool) -> dict[str, str]:
    """Mean and range of all measurements by name, over the replicates that pass the gate or those that fail."""
    effects, found = ruling.evidence.effects, {}
    alone = None if isinstance(effects, xr.Dataset) else ruling.claim.criteria[0].name
    for name, effect in as_dataset(effects).data_vars.items():
        values = case_means(effect)[_passing_replicates(ruling) == judged]
        values = values[~np.isnan(values)]
        if values.size:
            unit = str(effect.attrs.get("unit", ""))
            spread = f" [{format_number(values.min())}, {format_number(values.max())}]" if values.size > 1 else ""
            found[effect_name(alone or str(name))] = f"{format_number(values.mean())}{spread} {unit}".strip()
    return found


def shorten_rows(rulings: Sequence[Ruling]) -> list[list[str]]:
    """Rows of verdicts for the terminal, which has no room for long statements."""
    rows = verdict_rows(rulings)
    for row in rows:
        row[1] = textwrap.shorten(row[1], LONGEST, placeholder=" …")
    return rows


def _multiverse_table(rulings: Sequence[Ruling]) -> list[Table]:
    """Every combination of choices with its verdict, if any was tried."""
    rows = [
        [
            ruling.claim.id,
            "; ".join(f"{name}: {value}" for name, value in each.choices.items()),
            outcome_text(each.outcome),
            share_text(each.verdict, n=each.verdict.n),
            effect_text(each.verdict, n=each.verdict.n),
        ]
        for ruling in rulings
        if ruling.multiverse is not None
        for each in ruling.multiverse.universes
    ]
    header = ("id", "choices", "verdict", "share", "effect")
    title = "verdicts under combinations of choices"
    return [Table(name="multiverse", title=title, header=header, rows=rows, n_text=3)] if rows else []


def verdict_tables(rulings: Sequence[Ruling]) -> list[Table]:
    """Tables of rulings for files: verdicts, every effect of a claim by replicate, and unjudged measurements."""
    effects = []
    for ruling in rulings:
        for part, result in zip(ruling.claim.criteria, ruling.verdict.parts, strict=True):
            n = ruling.verdict.n
            cells = [share_text(result, n=n), effect_text(result, n=n, each=_judged_effect(ruling, part.name))]
            effects.append(
                [
                    ruling.claim.id,
                    part.name,
                    format_criterion(ruling.claim, part, effect_unit(ruling, part.name)),
                    *cells,
                ]
            )
    title, rows = "every effect that was judged", unjudged_rows(rulings)
    return [
        Table(name="verdicts", title="verdicts", header=VERDICT_HEADER, rows=verdict_rows(rulings), n_text=4),
        Table(name="effects", title=title, header=("id", "part", "must be", "share", "effect"), rows=effects, n_text=3),
        *([Table(name="unjudged", title=UNJUDGED, header=UNJUDGED_HEADER, rows=rows, n_text=2)] if rows else []),
        *(
            [Table(name="originals", title=ORIGINALS, header=ORIGINALS_HEADER, rows=placed, n_text=3)]
            if (placed := original_rows(rulings))
            else []
        ),
        *_multiverse_table(rulings),
    ]


def _judged_effect(ruling: Ruling, name: str) -> xr.DataArray:
    """An effect over the replicates that were judged, means over prompts."""
    evidence, chosen = ruling.evidence, _passing_replicates(ruling)
    labels = {evidence.replicate: evidence.labels[chosen]}
    return xr.DataArray(evidence.sample(name, chosen).effects, dims=evidence.replicate, coords=labels)


def _passing_replicates(ruling: Ruling) -> np.ndarray:
    """The replicates that pass the gate."""
    evidence, gate = ruling.evidence, ruling.claim.gate
    return np.full(len(evidence.labels), True) if gate is None else gate.passes(evidence.gate)
