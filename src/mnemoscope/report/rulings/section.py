"""All about one claim on the page of verdicts: the question, one seed worked through, every seed, controls, other
choices, rivals, training, and single sequences; whatever a ruling lacks is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.claims.claim import Claim, Criterion
from mnemoscope.claims.verdict import Cell, Ruling, Verdict
from mnemoscope.report.page import attention_view
from mnemoscope.report.rulings.asked import asked, criterion, described, effect_name, holds_if
from mnemoscope.report.rulings.control_rows import CONTROL_HEADER, control_rows
from mnemoscope.report.rulings.emergence import emergence_plots
from mnemoscope.report.rulings.plots import LOOKS, strip_plots
from mnemoscope.report.rulings.rows import UNJUDGED_HEADER, ranges, unjudged_rows
from mnemoscope.report.rulings.sheet import Entry, Sheet, badge, figures, table
from mnemoscope.report.rulings.words import (
    ZERO,
    ZERO_NOTE,
    earlier_text,
    effect_text,
    favoured_otherwise,
    favours,
    share_text,
    unit_of,
)
from mnemoscope.report.rulings.worked import Line, worked
from mnemoscope.report.tables import counted

_PARTS = ("part", "must be", "share", "effect")
_CELLS = ("factor", "value", "verdict", "share", "effect", "flips")
_RIVALS = ("rival", "explanation", "verdict", "share", "effect")
_WORKED = ("quantity", "what it is", "value", "must be", "", "mean [range] over the judged")
_MEETS = {True: "✓", False: "✗", None: ""}


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """The attention of one model on one sequence: one example of `named_patterns`.

    `caption` says which seed it is and why it is shown, and has the sequence. `attention` holds `pattern` (layer, head,
    query, key) and `token` (key).
    """

    caption: str
    attention: xr.Dataset


def add_section(sheet: Sheet, ruling: Ruling, examples: Sequence[Example]) -> None:
    """Append everything about one claim that its ruling has."""
    _sentence(sheet, ruling)
    _worked(sheet, ruling)
    _seeds(sheet, ruling)
    if ruling.claim.controls:
        sheet.page.heading("Controls")
        rows = [Entry(cells=[escape(cell) for cell in row]) for row in control_rows(ruling)]
        sheet.add(table(CONTROL_HEADER, rows, "controls"))
    _sensitivity(sheet, ruling)
    _rivals(sheet, ruling)
    _emergence(sheet, ruling)
    if examples:
        sheet.page.heading("Single sequences")
        sheet.page.text("Select a head to see it in full size; rows are queries, columns keys.")
    for example in examples:
        attention_view(sheet.page, example.attention, example.caption)


def _sentence(sheet: Sheet, ruling: Ruling) -> None:
    claim, verdict = ruling.claim, ruling.verdict
    sheet.add(f'<p class="statement">{escape(claim.statement)}</p><p class="source">Source: {escape(claim.source)}</p>')
    numbers = f"share {figures(share_text(verdict))}, effect {figures(effect_text(verdict))}"
    sheet.add(f'<p class="verdict">{badge(verdict.outcome)} {numbers}</p><p>{escape(ruling.reason)}</p>')
    sheet.page.heading("What was asked")
    terms = (f"<dt>{escape(what)}</dt><dd>{escape(text)}</dd>" for what, text in asked(ruling))
    sheet.add(f'<dl class="asked">{"".join(terms)}</dl>')
    if ruling.superseded:
        sheet.page.heading("Asked before")
        sheet.add(listed([escape(earlier_text(each)) for each in ruling.superseded]))


def listed(pieces: Sequence[str]) -> str:
    """Pieces of HTML as items of a list."""
    return f'<ul class="asked">{"".join(f"<li>{piece}</li>" for piece in pieces)}</ul>'


def _worked(sheet: Sheet, ruling: Ruling) -> None:
    example = worked(ruling)
    if example is None:
        return
    sheet.page.heading(f"One {ruling.evidence.replicate} worked through: {example.label}")
    sheet.page.text(f"{example.sentence} As many {ruling.evidence.replicate}s clear it by more as by less.")
    over_judged = ranges(ruling, judged=True)
    rows = [
        [
            escape(line.name),
            _meaning(line),
            figures(line.value),
            escape(line.must_be),
            _MEETS[line.meets],
            figures(over_judged.get(line.name, "")),
        ]
        for line in example.lines
    ]
    sheet.add(table(_WORKED, [Entry(cells=row) for row in rows], "worked"))


def _meaning(line: Line) -> str:
    if line.quantity is None:
        return ""
    formula = line.quantity.formula
    return escape(line.quantity.words) + (f'<span class="formula">{escape(formula)}</span>' if formula else "")


def _seeds(sheet: Sheet, ruling: Ruling) -> None:
    sheet.page.heading(f"{ruling.evidence.replicate.capitalize()} by {ruling.evidence.replicate}")
    kinds = ["judged", *(["fails the gate"] if ruling.verdict.n_failed else [])]
    kinds += [kind for kind in ("positive", "negative") if any(c.kind == kind for c in ruling.claim.controls)]
    signs = [f"{LOOKS[kind].sign} {LOOKS[kind].name}" for kind in kinds]
    sheet.page.text(
        f"{', '.join(signs)}; the bar beside the {ruling.evidence.replicate}s is their mean with its interval. "
        "Dashed: the margin; shaded: the side that clears it. Arrows: beyond the scale."
        + (" C1 and so on are the controls, which have a table below." if ruling.claim.controls else ""),
        "note",
    )
    _side_by_side(sheet, strip_plots(ruling))
    if rows := unjudged_rows([ruling]):
        sheet.page.text(
            f"What was measured of {ruling.evidence.replicate}s that fail the gate; no verdict rests on it."
        )
        sheet.add(table(UNJUDGED_HEADER, [Entry(cells=[escape(cell) for cell in row]) for row in rows], "unjudged"))
    if len(ruling.claim.criteria) > 1:
        parts = zip(ruling.claim.criteria, ruling.verdict.parts, strict=True)
        rows = [
            [escape(part.name), escape(_criterion(ruling, part)), figures(share_text(r)), figures(effect_text(r))]
            for part, r in parts
        ]
        sheet.add(table(_PARTS, [Entry(cells=row) for row in rows], "parts"))


def _criterion(ruling: Ruling, part: Criterion) -> str:
    return criterion(ruling.claim, part, unit_of(ruling, part.name))


def _sensitivity(sheet: Sheet, ruling: Ruling) -> None:
    if not ruling.sensitivity:
        return
    sheet.page.heading("Under other choices")
    n, n_flips = len(ruling.sensitivity), len(ruling.flips)
    sheet.page.text(
        f"One factor is changed at a time; {n_flips} of {counted(n, 'change')} "
        f"{'flips' if n_flips == 1 else 'flip'} the verdict. Changes that leave it undecided flip nothing."
    )
    rows = [Entry(cells=["as claimed", "", *results_of(ruling.verdict), ""])]
    rows += [_cell(ruling, cell) for cell in ruling.sensitivity]
    sheet.add(table(_CELLS, rows, "cells"))
    if any(cell.value == ZERO for cell in ruling.sensitivity):
        sheet.page.text(ZERO_NOTE)


def _cell(ruling: Ruling, cell: Cell) -> Entry:
    below = [escape(cell.verdict.reason)] if cell.flips else []
    of = "" if cell.verdict.id == ruling.claim.id else f"{cell.verdict.id}: "
    cells = [escape(of + cell.factor), escape(cell.value), *results_of(cell.verdict), "⚑ flips" if cell.flips else "no"]
    return Entry(cells=cells, below=below)


def _rivals(sheet: Sheet, ruling: Ruling) -> None:
    if not ruling.claim.rivals:
        return
    sheet.page.heading("Rival explanations")
    sheet.page.text(" ".join([favours(ruling), *favoured_otherwise(ruling)]))
    rows = []
    for rival in ruling.claim.rivals:
        if (verdict := ruling.rivals.get(rival.id)) is not None:
            own = rival.explanation if rival.explanation is not ruling.claim.explanation else None
            lines = [holds_if(rival, subject="It"), *_definitions(rival)]
            lines += [] if own is None else [own.procedure, own.margins]
            explained = escape(rival.statement) + "".join(f"<p>{escape(line)}</p>" for line in lines)
            cells = [escape(rival.id), explained, *results_of(verdict)]
            rows.append(Entry(cells=cells, below=[escape(verdict.reason)]))
    sheet.add(table(_RIVALS, rows, "rivals"))


def _definitions(rival: Claim) -> list[str]:
    found = {effect_name(part.name): described(rival, part.name) for part in rival.criteria}
    return [f"{name[0].upper()}{name[1:]} is {words}." for name, words in found.items() if words]


def results_of(verdict: Verdict) -> list[str]:
    """Outcome, share and effect as HTML."""
    return [badge(verdict.outcome), figures(share_text(verdict)), figures(effect_text(verdict))]


def _emergence(sheet: Sheet, ruling: Ruling) -> None:
    if ruling.emergence is None:
        return
    sheet.page.heading("Over training")
    seed = ruling.emergence.attrs.get("seed")
    which = "" if seed is None else f" of seed {seed}"
    sheet.page.text(f"The same measure on the checkpoints{which}. Dashed: the margin; shaded: the side that clears it.")
    _side_by_side(sheet, emergence_plots(ruling))


def _side_by_side(sheet: Sheet, plots: Sequence[tuple[go.Figure, str]]) -> None:
    sheet.add('<div class="plots">')
    for figure, caption in plots:
        sheet.page.figure(figure, caption)
    sheet.add("</div>")
