"""A `Page` in the style of verdict reports that draws its plots and views in turn.

A page that draws a hundred plots while it loads answers to nothing for seconds. Here each waits for the one before it
and lets the browser breathe between; printing draws what is left at once.
"""

import re
from importlib.resources import files

from mnemoscope.viz.page import Page

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
        self.page = Page(title, lead, style=(files("mnemoscope.viz") / "rulings.css").read_text())
        self.add(_IN_TURN)

    def add(self, piece: str) -> None:
        """A piece of HTML; what comes from outside must have been escaped."""
        self.page.block(piece)

    def html(self) -> str:
        """The whole page."""
        return _DRAWING.sub(r'later(\1, "\2", ', self.page.html())
