"""One claim on the page: what was asked, every seed, controls, other choices, rivals, training, single sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import xarray as xr

from mnemoscope.judging.evidence import as_dataset
from mnemoscope.judging.verdict import Cell, Ruling, Verdict
from mnemoscope.viz.rulings.columns import LOOKS, by_case
from mnemoscope.viz.rulings.controls import CONTROLS_HEADER, control_rows
from mnemoscope.viz.rulings.emergence import emergence_plots
from mnemoscope.viz.rulings.fragments import Entry, badge, figures, table
from mnemoscope.viz.rulings.sheet import Sheet
from mnemoscope.viz.rulings.strips import strip_plots
from mnemoscope.viz.rulings.words import asked, criterion, effect_text, favours, number, share_text
from mnemoscope.viz.views import attention_view

_PARTS = ("part", "must be", "share", "effect")
_CELLS = ("factor", "value", "verdict", "share", "effect", "flips")
_RIVALS = ("rival", "statement", "verdict", "share", "effect")
_BESIDE = ("measured beside", "mean [range] over the judged")


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """The attention of one model on one sequence.

    Attributes:
        caption: Which seed it is and why it is shown, and the sequence.
        attention: `pattern` (layer, head, query, key) and `token` (key): one example of `attention_patterns`.
    """

    caption: str
    attention: xr.Dataset


def section(sheet: Sheet, ruling: Ruling, examples: Sequence[Example]) -> None:
    """Append everything about one claim; what it does not have is left out."""
    _sentence(sheet, ruling)
    _seeds(sheet, ruling)
    if ruling.claim.controls:
        sheet.page.heading("Controls")
        rows = [Entry(cells=[escape(cell) for cell in row]) for row in control_rows(ruling)]
        sheet.add(table(CONTROLS_HEADER, rows, "controls"))
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
    sheet.add(f'<p class="verdict">{badge(verdict.outcome)} {numbers}</p><p>{escape(verdict.reason)}</p>')
    sheet.page.heading("What was asked")
    sheet.add(f'<ul class="asked">{"".join(f"<li>{escape(sentence)}</li>" for sentence in asked(ruling))}</ul>')


def _seeds(sheet: Sheet, ruling: Ruling) -> None:
    sheet.page.heading(f"{ruling.evidence.replicate.capitalize()} by {ruling.evidence.replicate}")
    kinds = ["judged", *(["fails the gate"] if ruling.verdict.n_failed else [])]
    kinds += [kind for kind in ("positive", "negative") if any(c.kind == kind for c in ruling.claim.controls)]
    signs = [f"{LOOKS[kind].sign} {LOOKS[kind].name}" for kind in kinds]
    sheet.page.text(
        f"{', '.join(signs)}; the bar beside the {ruling.evidence.replicate}s is their mean with its interval. "
        "Dashed: the margin; shaded: the side that clears it. Arrows: beyond the scale.",
        "note",
    )
    _side_by_side(sheet, ruling, emerging=False)
    if len(ruling.claim.criteria) > 1:
        parts = zip(ruling.claim.criteria, ruling.verdict.parts, strict=True)
        rows = [
            [escape(part.name), escape(criterion(ruling, part)), figures(share_text(r)), figures(effect_text(r))]
            for part, r in parts
        ]
        sheet.add(table(_PARTS, [Entry(cells=row) for row in rows], "parts"))
    if beside := _beside(ruling):
        sheet.add(table(_BESIDE, [Entry(cells=[escape(name), figures(text)]) for name, text in beside], "beside"))


def _beside(ruling: Ruling) -> list[tuple[str, str]]:
    """What was measured and is no part of the claim: mean and range over the judged replicates."""
    gate, parts = ruling.claim.gate, {part.name for part in ruling.claim.criteria}
    rows = []
    for name, effect in as_dataset(ruling.evidence.effects).data_vars.items():
        values = by_case(effect)[... if gate is None else gate.passes(ruling.evidence.gate)]
        values = values[~np.isnan(values)]
        if name not in parts and values.size and isinstance(ruling.evidence.effects, xr.Dataset):
            unit = str(effect.attrs.get("unit", ""))
            text = f"{number(values.mean())} [{number(values.min())}, {number(values.max())}] {unit}"
            rows.append((str(name), text.strip()))
    return rows


def _sensitivity(sheet: Sheet, ruling: Ruling) -> None:
    if not ruling.sensitivity:
        return
    sheet.page.heading("Under other choices")
    n, n_flips = len(ruling.sensitivity), len(ruling.flips)
    sheet.page.text(
        f"One factor is changed at a time; {n_flips} of {n} changes {'flips' if n_flips == 1 else 'flip'} the verdict. "
        "Changes that leave it undecided flip nothing."
    )
    rows = [Entry(cells=["as claimed", "", *_results(ruling.verdict), ""])]
    rows += [_cell(ruling, cell) for cell in ruling.sensitivity]
    sheet.add(table(_CELLS, rows, "cells"))


def _cell(ruling: Ruling, cell: Cell) -> Entry:
    below = [escape(cell.verdict.reason)] if cell.flips else []
    of = "" if cell.verdict.id == ruling.claim.id else f"{cell.verdict.id}: "
    cells = [escape(of + cell.factor), escape(cell.value), *_results(cell.verdict), "⚑ flips" if cell.flips else "no"]
    return Entry(cells=cells, below=below)


def _rivals(sheet: Sheet, ruling: Ruling) -> None:
    if not ruling.claim.rivals:
        return
    sheet.page.heading("Rival explanations")
    sheet.page.text(favours(ruling))
    rows = []
    for rival in ruling.claim.rivals:
        if (verdict := ruling.rivals.get(rival.id)) is not None:
            cells = [escape(rival.id), escape(rival.statement), *_results(verdict)]
            rows.append(Entry(cells=cells, below=[escape(verdict.reason)]))
    sheet.add(table(_RIVALS, rows, "rivals"))


def _results(verdict: Verdict) -> list[str]:
    return [badge(verdict.outcome), figures(share_text(verdict)), figures(effect_text(verdict))]


def _emergence(sheet: Sheet, ruling: Ruling) -> None:
    if ruling.emergence is None:
        return
    sheet.page.heading("Over training")
    seed = ruling.emergence.attrs.get("seed")
    which = "" if seed is None else f" of seed {seed}"
    sheet.page.text(f"The same measure on the checkpoints{which}. Dashed: the margin; shaded: the side that clears it.")
    _side_by_side(sheet, ruling, emerging=True)


def _side_by_side(sheet: Sheet, ruling: Ruling, *, emerging: bool) -> None:
    sheet.add('<div class="plots">')
    for figure, caption in (emergence_plots if emerging else strip_plots)(ruling):
        sheet.page.figure(figure, caption)
    sheet.add("</div>")
