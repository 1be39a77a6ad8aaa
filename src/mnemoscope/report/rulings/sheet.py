"""The HTML of verdict reports: a `Page` that draws its plots in turn, badges, and tables whose rows have text beneath.

A page that draws a hundred plots while it loads does not respond for seconds. Here each waits for the one before it,
with pauses for the browser; printing draws the rest at once. No outcome is shown by colour alone: a badge has a sign,
the word, and a different frame.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from mnemoscope.claims.verdict import Outcome, Ruling
from mnemoscope.report.page import Page
from mnemoscope.report.rulings.words import outcome_text

_DRAWING = re.compile(r'\b(Plotly|CircuitsVis)\.(newPlot|render)\((?=\s*")')
_IN_TURN = """<script>
const waiting = [];
const later = (library, draw, ...what) => waiting.push(() => library[draw](...what));
const drawNext = () => { if (waiting.length) { waiting.shift()(); setTimeout(drawNext); } };
const drawAll = () => { while (waiting.length) waiting.shift()(); };
addEventListener("load", drawNext);
addEventListener("beforeprint", drawAll);
</script>"""


class Sheet:
    """A page put together from top to bottom; text, tables, figures and views go to `page`, pieces of HTML here."""

    def __init__(self, title: str, lead: str = ""):
        self.page = Page(title, lead, style=(files("mnemoscope.report") / "rulings.css").read_text())
        self.add(_IN_TURN)

    def add(self, piece: str) -> None:
        """A piece of HTML; what comes from outside must have been escaped."""
        self.page.block(piece)

    def html(self) -> str:
        """The whole page."""
        return _DRAWING.sub(r'later(\1, "\2", ', self.page.html())


SIGNS: dict[Outcome, str] = {
    "SUPPORTED": "✓",
    "REFUTED": "✗",
    "MIXED": "◐",
    "INCONCLUSIVE": "?",
    "NOT_APPLICABLE": "–",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row of a table: HTML for every column, and below lines of HTML over the whole width."""

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
