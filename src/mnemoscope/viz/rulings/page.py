"""The verdict report: all verdicts in one table, then a section a claim."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType

from mnemoscope.judging.verdict import Ruling
from mnemoscope.viz.rulings.fragments import Entry, badge, figures, link, place, table
from mnemoscope.viz.rulings.section import Example, section
from mnemoscope.viz.rulings.sheet import Sheet
from mnemoscope.viz.rulings.words import (
    MEANINGS,
    effect_text,
    favoured,
    flips,
    share_text,
)

_HEADER = ("id", "statement", "verdict", "share", "effect")
_LEGEND = (
    "Share: of the judged replicates, how many clear the margin, with its exact 95 % interval. Effect: mean over the "
    "judged replicates with its studentised 95 % interval; where a claim has several parts, of the part that decides. "
    "Favoured: which explanations the evidence supports. Flips: which other choices give another verdict."
)


def rulings_page(
    rulings: Sequence[Ruling],
    *,
    title: str,
    lead: str = "",
    examples: Mapping[str, Sequence[Example]] = MappingProxyType({}),
) -> str:
    """One self-contained HTML page, for the screen and for paper.

    Args:
        rulings: In the order in which they are shown.
        title: Of the page.
        lead: A sentence under the title.
        examples: Attention on single sequences to be shown, by id of the claim.
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
        section(sheet, ruling, examples.get(ruling.claim.id, ()))
    return sheet.html()


def _counts(rulings: Sequence[Ruling]) -> str:
    """How often each outcome comes up, and what it says."""
    n = Counter(ruling.verdict.outcome for ruling in rulings)
    items = (
        f"<li><strong>{n[outcome]}</strong> {badge(outcome)} {escape(says)}</li>" for outcome, says in MEANINGS.items()
    )
    return (
        f'<p>{len(rulings)} {"claim" if len(rulings) == 1 else "claims"}:</p><ul class="counts">{"".join(items)}</ul>'
    )


def _entry(i: int, ruling: Ruling) -> Entry:
    claim, verdict = ruling.claim, ruling.verdict
    headline = ' <span class="mark">headline</span>' if claim.headline else ""
    statement = f'{escape(claim.statement)}{headline}<span class="source">{escape(claim.source)}</span>'
    why, *beside = (
        f"<b>{name}:</b> {escape(text)}"
        for name, text in (("Why", verdict.reason), ("Favoured", favoured(ruling)), ("Flips", flips(ruling)))
    )
    below = [why, " &emsp; ".join(beside)]
    cells = [link(i, ruling), statement, badge(verdict.outcome), figures(share_text(verdict))]
    return Entry(cells=[*cells, figures(effect_text(verdict))], below=below)
