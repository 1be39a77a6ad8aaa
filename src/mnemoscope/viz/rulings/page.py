"""The verdict report: all verdicts in one table, then one section per claim.

A section shows what was asked, one seed worked through, every seed, controls, other choices, rivals, training, single
sequences, and how to reproduce it; what a ruling does not have is left out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.judging.claim import Claim, Criterion
from mnemoscope.judging.evidence import as_dataset
from mnemoscope.judging.verdict import Cell, Ruling, Verdict
from mnemoscope.viz.page import attention_view
from mnemoscope.viz.rulings.asked import asked, criterion, described, effect_name, holds_if
from mnemoscope.viz.rulings.control_rows import CONTROL_HEADER, control_rows
from mnemoscope.viz.rulings.emergence import emergence_plots
from mnemoscope.viz.rulings.plots import LOOKS, by_case, strip_plots
from mnemoscope.viz.rulings.sheet import Entry, Sheet, badge, figures, link, place, table
from mnemoscope.viz.rulings.words import (
    MEANINGS,
    ZERO,
    ZERO_NOTE,
    as_registered,
    earlier_text,
    effect_text,
    favoured,
    favoured_otherwise,
    favours,
    flips,
    number,
    recipe_text,
    share_text,
    unit_of,
)
from mnemoscope.viz.rulings.worked import Line, worked
from mnemoscope.viz.tables import counted

_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect")
_PARTS = ("part", "must be", "share", "effect")
_CELLS = ("factor", "value", "verdict", "share", "effect", "flips")
_RIVALS = ("rival", "explanation", "verdict", "share", "effect")
_BESIDE = ("measured beside", "mean [range] over the judged")
_WORKED = ("quantity", "what it is", "value", "must be", "")
_MEETS = {True: "✓", False: "✗", None: ""}
_LEGEND = (
    "Recipe: that of the models the verdict speaks of. Share: of the judged replicates, how many clear the margin, "
    "with its exact 95 % interval. Effect: mean over the judged replicates with its studentised 95 % interval; where a "
    "claim has several parts, of the part that decides. "
    "Favoured: which explanations the evidence supports. Flips: which other choices give another verdict."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """The attention of one model on one sequence.

    Attributes:
        caption: Which seed it is and why it is shown, and the sequence.
        attention: `pattern` (layer, head, query, key) and `token` (key): one example of `attention_patterns`.
    """

    caption: str
    attention: xr.Dataset


def rulings_page(
    rulings: Sequence[Ruling],
    *,
    title: str,
    lead: str = "",
    examples: Mapping[str, Sequence[Example]] = MappingProxyType({}),
    sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """One self-contained HTML page, for the screen and for paper; arguments as of `rulings_sheet`."""
    return rulings_sheet(rulings, title=title, lead=lead, examples=examples, sources=sources).html()


def rulings_sheet(
    rulings: Sequence[Ruling],
    *,
    title: str,
    lead: str = "",
    examples: Mapping[str, Sequence[Example]] = MappingProxyType({}),
    sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Sheet:
    """The page, put together.

    Args:
        rulings: In the order in which they are shown.
        title: Of the page.
        lead: A sentence under the title.
        examples: Attention on single sequences to be shown, by id of the claim.
        sources: By id of the claim, pieces of HTML on how its verdict is reproduced and where its arrays are.
    """
    sheet = Sheet(title, lead)
    sheet.page.section("Verdicts")
    sheet.add(_counts(rulings))
    entries = [_entry(i, ruling) for i, ruling in enumerate(rulings)]
    sheet.add(table(_HEADER, entries, "verdicts"))
    sheet.page.text(_LEGEND, "note")
    for i, ruling in enumerate(rulings):
        sheet.add(f'<div class="claim" id="{place(i)}"></div>')
        sheet.page.section(ruling.claim.id)
        _section(sheet, ruling, examples.get(ruling.claim.id, ()))
        if pieces := sources.get(ruling.claim.id):
            sheet.page.heading("To reproduce it")
            sheet.add(_list(pieces))
    return sheet


def _counts(rulings: Sequence[Ruling]) -> str:
    """How often each outcome occurs, and what it means."""
    n = Counter(ruling.verdict.outcome for ruling in rulings)
    items = (
        f"<li><strong>{n[outcome]}</strong> {badge(outcome)} {escape(meaning)}</li>"
        for outcome, meaning in MEANINGS.items()
    )
    return f'<p>{counted(len(rulings), "claim")}:</p><ul class="counts">{"".join(items)}</ul>'


def _entry(i: int, ruling: Ruling) -> Entry:
    claim, verdict = ruling.claim, ruling.verdict
    headline = ' <span class="mark">headline</span>' if claim.headline else ""
    statement = f'{escape(claim.statement)}{headline}<span class="source">{escape(claim.source)}</span>'
    why, *beside = (
        f"<b>{name}:</b> {escape(text)}"
        for name, text in (
            ("Why", ruling.reason),
            ("Favoured", favoured(ruling)),
            ("Flips", flips(ruling)),
            ("Registered", as_registered(ruling)),
        )
    )
    below = [why, " &emsp; ".join(beside)]
    outcome, share, effect = _results(verdict)
    recipe = escape(recipe_text(claim))
    return Entry(cells=[link(i, ruling), statement, outcome, recipe, share, effect], below=below)


def _section(sheet: Sheet, ruling: Ruling, examples: Sequence[Example]) -> None:
    """Append everything about one claim; what it does not have is left out."""
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
        sheet.add(_list([escape(earlier_text(each)) for each in ruling.superseded]))


def _list(pieces: Sequence[str]) -> str:
    """Pieces of HTML as items."""
    return f'<ul class="asked">{"".join(f"<li>{piece}</li>" for piece in pieces)}</ul>'


def _worked(sheet: Sheet, ruling: Ruling) -> None:
    example = worked(ruling)
    if example is None:
        return
    sheet.page.heading(f"One {ruling.evidence.replicate} worked through: {example.label}")
    sheet.page.text(f"{example.sentence} As many {ruling.evidence.replicate}s clear it by more as by less.")
    rows = [
        [escape(line.name), _meaning(line), figures(line.value), escape(line.must_be), _MEETS[line.meets]]
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
    if len(ruling.claim.criteria) > 1:
        parts = zip(ruling.claim.criteria, ruling.verdict.parts, strict=True)
        rows = [
            [escape(part.name), escape(_criterion(ruling, part)), figures(share_text(r)), figures(effect_text(r))]
            for part, r in parts
        ]
        sheet.add(table(_PARTS, [Entry(cells=row) for row in rows], "parts"))
    if beside := _beside(ruling):
        sheet.add(table(_BESIDE, [Entry(cells=[escape(name), figures(text)]) for name, text in beside], "beside"))


def _criterion(ruling: Ruling, part: Criterion) -> str:
    return criterion(ruling.claim, part, unit_of(ruling, part.name))


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
        f"One factor is changed at a time; {n_flips} of {counted(n, 'change')} "
        f"{'flips' if n_flips == 1 else 'flip'} the verdict. Changes that leave it undecided flip nothing."
    )
    rows = [Entry(cells=["as claimed", "", *_results(ruling.verdict), ""])]
    rows += [_cell(ruling, cell) for cell in ruling.sensitivity]
    sheet.add(table(_CELLS, rows, "cells"))
    if any(cell.value == ZERO for cell in ruling.sensitivity):
        sheet.page.text(ZERO_NOTE)


def _cell(ruling: Ruling, cell: Cell) -> Entry:
    below = [escape(cell.verdict.reason)] if cell.flips else []
    of = "" if cell.verdict.id == ruling.claim.id else f"{cell.verdict.id}: "
    cells = [escape(of + cell.factor), escape(cell.value), *_results(cell.verdict), "⚑ flips" if cell.flips else "no"]
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
            cells = [escape(rival.id), explained, *_results(verdict)]
            rows.append(Entry(cells=cells, below=[escape(verdict.reason)]))
    sheet.add(table(_RIVALS, rows, "rivals"))


def _definitions(rival: Claim) -> list[str]:
    """What the effects of a rival are."""
    found = {effect_name(part.name): described(rival, part.name) for part in rival.criteria}
    return [f"{name[0].upper()}{name[1:]} is {words}." for name, words in found.items() if words]


def _results(verdict: Verdict) -> list[str]:
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
