"""Pieces of HTML that a plain `Page` does not have: badges, tables whose rows have text beneath, links.

Nothing is said by colour alone: a badge has a sign, the word, and a frame of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mnemoscope.judging.verdict import Outcome, Ruling
from mnemoscope.viz.rulings.words import outcome_text

SIGNS: dict[Outcome, str] = {
    "SUPPORTED": "✓",
    "REFUTED": "✗",
    "MIXED": "◐",
    "INCONCLUSIVE": "?",
    "NOT_APPLICABLE": "–",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row of a table.

    Attributes:
        cells: HTML, one a column.
        below: HTML over the whole width, a line each.
    """

    cells: Sequence[str]
    below: Sequence[str] = ()


def badge(outcome: Outcome) -> str:
    """An outcome: sign, word, frame and colour."""
    kind = outcome.lower().replace("_", "-")
    return f'<span class="badge {kind}"><b aria-hidden="true">{SIGNS[outcome]}</b> {outcome_text(outcome)}</span>'


def figures(text: str) -> str:
    """A number with its interval and unit: the line may break between the three and not within the interval."""
    return escape(text).replace("[", '<span class="interval">[').replace("]", "]</span>")


def table(header: Sequence[str], entries: Sequence[Entry], kind: str) -> str:
    """A table that becomes a list of cards where the page is narrow, each cell under the name of its column."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(_group(header, entry) for entry in entries)
    return f'<table class="entries {kind}"><thead><tr>{head}</tr></thead>{body}</table>'


def _group(header: Sequence[str], entry: Entry) -> str:
    cells = (
        f'<td data-name="{escape(name)}"><div>{cell}</div></td>' for name, cell in zip(header, entry.cells, strict=True)
    )
    lines = "".join(f"<p>{line}</p>" for line in entry.below)
    below = f'<tr class="below"><td colspan="{len(header)}">{lines}</td></tr>' if lines else ""
    return f"<tbody><tr>{''.join(cells)}</tr>{below}</tbody>"


def place(i: int) -> str:
    """Name of the place where the i-th claim starts."""
    return f"ruling-{i + 1}"


def link(i: int, ruling: Ruling) -> str:
    """A link to the section of the i-th claim."""
    return f'<a href="#{place(i)}">{escape(ruling.claim.id)}</a>'
