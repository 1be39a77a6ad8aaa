"""The verdict report: all verdicts in one table, then one section per claim, with the way to reproduce its verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType

from mnemoscope.claims.verdict import Ruling
from mnemoscope.report.rulings.section import Example, add_section, listed, results_of
from mnemoscope.report.rulings.sheet import Entry, Sheet, badge, link, place, table
from mnemoscope.report.rulings.words import (
    MEANINGS,
    as_registered,
    favoured,
    flips,
    recipe_text,
)
from mnemoscope.report.tables import counted

_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect")
_LEGEND = (
    "Recipe: that of the models the verdict speaks of. Share: of the judged replicates, how many clear the margin, "
    "with its exact 95 % interval. Effect: mean over the judged replicates with its studentised 95 % interval; where a "
    "claim has several parts, of the part that decides. "
    "Favoured: which explanations the evidence supports. Flips: which other choices give another verdict."
)


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
    """The page, put together from rulings in their order on it.

    `lead` is a sentence under the title. By id of the claim, `examples` give attention on single sequences, and
    `sources` pieces of HTML on the way to reproduce its verdict and the place of its arrays.
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
        add_section(sheet, ruling, examples.get(ruling.claim.id, ()))
        if pieces := sources.get(ruling.claim.id):
            sheet.page.heading("To reproduce it")
            sheet.add(listed(pieces))
    return sheet


def _counts(rulings: Sequence[Ruling]) -> str:
    """The number of occurrences of each outcome, and its meaning."""
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
            ("Registered", as_registered(ruling.departures, ruling.code)),
        )
    )
    below = [why, " &emsp; ".join(beside)]
    outcome, share, effect = results_of(verdict)
    recipe = escape(recipe_text(claim))
    return Entry(cells=[link(i, ruling), statement, outcome, recipe, share, effect], below=below)
