"""Self-contained HTML: text, tables, plotly figures and CircuitsVis views in one file, without the network.

The HTML stands in `templates`, the style of all pages in `page.css`. Each script library is included once, and only if
something on the page uses it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from importlib.resources import files
from itertools import chain, count, product
from pathlib import Path
from typing import Any

import circuitsvis
import numpy as np
import plotly.graph_objects as go
import xarray as xr
from jaxtyping import Float
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from mnemoscope.core.html import macros, render
from mnemoscope.report.tables import Table

TEMPLATES = "report/templates/"
_LONGEST_TITLE = 4096
_PLOT = {
    "displaylogo": False,
    "responsive": True,
    "displayModeBar": "hover",
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
}
"""Options of every figure: a toolbar that downloads it and moves about in it."""
_DRAWING = re.compile(r"\bPlotly\.newPlot\(")
_UNFOLD = (
    'addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));'
)
"""Paper shows what is folded on the screen."""
_LONGEST = 60
"""Most characters of a figure's name in the names of files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PageFigure:
    """A plotly figure of a page; `words` name a file with it: section, heading, and title or else caption."""

    figure: go.Figure
    words: str
    caption: str
    """The text under it, else its title."""


class Page:
    """An HTML page that is put together from top to bottom.

    Each method adds a piece and returns its HTML. A template of a body (`write`) gets the page as `page`, and the
    pieces that it asks for stand where it asks for them.

    Args:
        title: The title, also of the window.
        lead: A sentence under the title.
        style: Rules that follow those of all pages.
        fold: A click opens each table; on paper all are open.
        kind: The kind of page, for rules of `page.css` that only such pages follow.
        once: A figure that stands on the page already is linked, not drawn again.
        in_turn: Each figure and view waits for the one before it, with pauses for the browser, so that a page with a
            hundred of them responds while it loads; what is folded is drawn when it is opened. Printing draws the rest
            at once.
    """

    def __init__(
        self,
        title: str,
        lead: str = "",
        *,
        style: str = "",
        fold: bool = False,
        kind: str = "",
        once: bool = False,
        in_turn: bool = False,
    ):
        self._title, self._lead, self._style, self._kind = title, lead, style, kind
        self._fold, self._once, self._in_turn = fold, once, in_turn
        self._body: list[Markup] = []
        self._sections: list[tuple[str, str]] = []
        self._heading = ""
        self._n_views = 0
        self.figures: list[PageFigure] = []

    def _add(self, piece: str, *values: Any) -> Markup:
        """Add a piece from `pieces.html.jinja`."""
        return self.block(getattr(macros(f"{TEMPLATES}pieces.html.jinja"), piece)(*values))

    def block(self, html: str) -> Markup:
        """A piece of HTML as it is; what comes from outside must have been escaped."""
        self._body.append(Markup(html))
        return self._body[-1]

    def write(self, template: str, **values: Any) -> None:
        """A template of the package, with this page as `page`."""
        before, self._body = self._body, []
        self._body = [*before, Markup(render(template, page=self, **values))]

    def filled_by(self, add: Callable[..., Any], *values: Any) -> Markup:
        """The pieces that a function adds to the page, which it gets before its other values."""
        n = len(self._body)
        add(self, *values)
        return Markup("").join(self._body[n:])

    def part(self, title: str) -> Markup:
        """Start a part: sections that follow belong to it, and their titles may have stood there before."""
        return self._add("part", self._anchor(title), title)

    def section(self, title: str) -> Markup:
        """Start a section; it appears in the table of contents."""
        self._heading = ""
        return self._add("section", self._anchor(title), title)

    def _anchor(self, title: str) -> str:
        """A name for a link that no other has, which the table of contents gets."""
        words, taken = _slug(title), {anchor for anchor, _ in self._sections}
        anchor = next(name for name in chain([words], (f"{words}-{i}" for i in count(2))) if name not in taken)
        self._sections.append((anchor, title))
        return anchor

    def heading(self, title: str) -> Markup:
        """A heading inside a section."""
        self._heading = title
        return self._add("heading", title)

    def text(self, text: str, kind: str = "") -> Markup:
        """A paragraph of plain text, with code between backticks; `kind` "warn" sets it apart."""
        return self._add("text", re.split(r"`([^`]+)`", text), kind)

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, n_text: int = 1
    ) -> Markup:
        """A table; the first `n_text` columns are text, the others are numbers already formatted."""
        return self._add("table", header, rows, caption, n_text, self._fold)

    def show(self, table: Table) -> Markup:
        """A table that knows its columns and its title."""
        return self.table(table.header, table.rows, table.title, n_text=table.n_text)

    def figure(self, figure: go.Figure, caption: str = "") -> Markup:
        """A plotly figure; its toolbar downloads it as SVG."""
        section = self._sections[-1][1] if self._sections else ""
        layout: Any = figure.layout
        said = layout.title.text or re.split(r"[.;:](?:\s|$)", caption)[0]
        alike = (each for each in enumerate(self.figures, 1) if each[1].figure == figure)
        if self._once and (known := next(alike, None)):
            return self._add("again", known[0], known[1].caption)
        words = _shorten(_slug(section, self._heading, said))
        self.figures.append(PageFigure(figure=figure, words=words, caption=caption or said))
        download = {"format": "svg", "filename": self.figures[-1].words or "figure"}
        config = {**_PLOT, "toImageButtonOptions": download}
        plot = figure.to_html(full_html=False, include_plotlyjs=False, config=config)
        if self._in_turn:
            plot = _DRAWING.sub('later(Plotly, "newPlot", ', plot)
        return self._add("figure", f"figure-{len(self.figures)}", Markup(plot), caption)

    def attention(
        self,
        tokens: Sequence[str],
        patterns: Float[np.ndarray, "head query key"],
        names: Sequence[str],
        caption: str = "",
    ) -> Markup:
        """A CircuitsVis view of heads on one sequence; keys after a query are grey, unless some head attends to one."""
        self._n_views += 1
        properties = {
            "tokens": [escape(token, quote=False) for token in tokens],
            "attention": [[[round(float(w), 4) for w in row] for row in head] for head in patterns],
            "attentionHeadNames": list(names),
            "maskUpperTri": not bool(np.triu(patterns, 1).any()),
        }
        data = Markup(json.dumps(properties).replace("</", "<\\/"))
        return self._add("view", f"attention-{self._n_views}", data, caption, self._in_turn)

    def _repr_html_(self) -> str:
        """The page in its own frame, for a notebook and for what is exported of it."""
        return str(Page("")._add("frame", self.html()))

    def html(self) -> str:
        """The whole page."""
        scripts = [get_plotlyjs()] if self.figures else []
        if self._n_views:
            scripts.append((files(circuitsvis) / "dist" / "cdn" / "iife.js").read_text(encoding="utf-8"))
        body = Markup("").join(self._body)
        scripts += [_UNFOLD] if "<details" in body else []
        scripts += [read_source("draw_in_turn.js")] if self._in_turn else []
        return (
            render(
                f"{TEMPLATES}layout.html.jinja",
                start=Markup(_start()),
                title=self._title,
                lead=self._lead,
                kind=self._kind,
                style=Markup(read_source("page.css") + self._style),
                scripts=[Markup(script.replace("</script", "<\\/script")) for script in scripts],
                sections=self._sections,
                body=body,
            )
            + "\n"
        )


def read_source(name: str) -> str:
    """A style sheet or script of this room."""
    return (files("mnemoscope.report") / name).read_text(encoding="utf-8")


def _start() -> str:
    """The start of every page; it identifies a page as ours."""
    return render(f"{TEMPLATES}start.html.jinja")


def _slug(*texts: str) -> str:
    """Texts as lower-case words with hyphens between them; HTML and what is no letter or digit is left out."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"<[^>]*>", " ", " ".join(texts)).lower()).strip("-")


def _shorten(words: str) -> str:
    """As many of the words as a file's name should have."""
    return words if len(words) <= _LONGEST else words[: _LONGEST + 1].rpartition("-")[0]


def title_of(file: Path) -> str | None:
    """The title of a page that `Page` made; None where another program made it, or it cannot be read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_start()) + _LONGEST_TITLE).decode(errors="replace")
    except OSError:
        return None
    return unescape(start.removeprefix(_start()).partition("</title>")[0]) if start.startswith(_start()) else None


def attention_view(page: Page, example: xr.Dataset, caption: str, names: Mapping[str, str] | None = None) -> Markup:
    """An interactive view of the attention of every head on one sequence.

    Args:
        page: The page that gets it.
        example: `pattern` over (layer, head, query, key) and `token` over key. `n_tokens`, if it is there, is the
            number without padding, which is left out; `called` over (layer, head) names the heads. Layers and heads
            have the numbers of their coordinates, also where some were selected.
        caption: Above the view.
        names: Names of heads, by `L0H1`, in the order in which heads are shown; none: by their numbers.
    """
    if "n_tokens" in example:
        real = slice(int(example.n_tokens))
        example = example.isel(query=real, key=real)
    pattern = _of_heads(example.pattern).transpose("layer", "head", "query", "key")
    heads = [f"L{layer}H{head}" for layer, head in product(pattern["layer"].values, pattern["head"].values)]
    patterns = pattern.values.reshape(len(heads), *pattern.shape[2:])
    if names is None and "called" in example:
        called = _of_heads(example.called).transpose("layer", "head").values.ravel().tolist()
        names = dict(zip(heads, called, strict=True))
    shown = dict.fromkeys(heads) if names is None else {head: names[head] for head in names if head in heads}
    chosen = patterns[[heads.index(head) for head in shown]]
    called = [name or head for head, name in shown.items()]
    return page.attention([str(token) for token in example.token.values], chosen, called, caption)


def _of_heads(array: xr.DataArray) -> xr.DataArray:
    """The array with axes for layers and heads, also where a single one was selected, which drops its axis."""
    return array.expand_dims([axis for axis in ("layer", "head") if axis not in array.dims])
