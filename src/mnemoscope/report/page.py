"""Self-contained HTML: text, tables, plotly figures and CircuitsVis views in one file, without the network.

Each script library is included once, and only if something on the page uses it.
"""

import json
import re
from collections.abc import Mapping, Sequence
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
from plotly.offline import get_plotlyjs

from mnemoscope.report.tables import Table

_NO_NETWORK = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:"
)
"""The browser refuses, aloud, whatever the page would ask of another machine."""
_START = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">'
    '<link rel="icon" href="data:,"><title>'
)
"""The start of every page; it identifies a page as ours."""
_LONGEST_TITLE = 4096
_PLOT = {
    "displaylogo": False,
    "responsive": True,
    "displayModeBar": "hover",
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
}
"""Options of every figure: a toolbar that downloads it and moves about in it."""
_UNFOLD = (
    'addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));'
)
"""Paper shows what is folded on the screen."""
_LONGEST = 60
"""Most characters of a figure's name in the names of files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """A plotly figure of a page; `words` name a file with it: section, heading, and title or else caption."""

    figure: go.Figure
    words: str


class Page:
    """An HTML page that is put together from top to bottom.

    `lead` is a sentence under the title; `style` holds rules that follow those of all pages. With `fold`, a click opens
    each table; on paper all are open.
    """

    def __init__(self, title: str, lead: str = "", *, style: str = "", fold: bool = False):
        self._title = title
        self._style = style
        self._body: list[str] = []
        self._sections: list[tuple[str, str]] = []
        self._lead = lead
        self._fold = fold
        self._heading = ""
        self._n_views = 0
        self.figures: list[Drawn] = []

    def part(self, title: str) -> None:
        """Start a part: sections that follow belong to it, and their titles may have stood there before."""
        self._sections.append((self._anchor(title), title))
        self._body.append(f'<h1 class="part" id="{self._sections[-1][0]}">{escape(title)}</h1>')

    def _anchor(self, title: str) -> str:
        """A name for a link that no other has."""
        words = _words(title)
        taken = {anchor for anchor, _ in self._sections}
        return next(name for name in chain([words], (f"{words}-{i}" for i in count(2))) if name not in taken)

    def section(self, title: str) -> None:
        """Start a section; it appears in the table of contents."""
        anchor = self._anchor(title)
        self._heading = ""
        self._sections.append((anchor, title))
        self._body.append(f'<h2 id="{anchor}">{escape(title)}</h2>')

    def heading(self, title: str) -> None:
        """A heading inside a section."""
        self._heading = title
        self._body.append(f"<h3>{escape(title)}</h3>")

    def text(self, text: str, kind: str = "") -> None:
        """A paragraph of plain text, with code between backticks; `kind` "warn" sets it apart."""
        attribute = f' class="{kind}"' if kind else ""
        marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
        self._body.append(f"<p{attribute}>{marked}</p>")

    def block(self, html: str) -> None:
        """A piece of HTML as it is; what comes from outside must have been escaped."""
        self._body.append(html)

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, n_text: int = 1
    ) -> None:
        """A table; the first `n_text` columns are text, the others are numbers already formatted."""

        def line(tag: str, cells: Sequence[str]) -> str:
            kinds = [' class="text"' if i < n_text else "" for i in range(len(cells))]
            inner = (f"<{tag}{k}>{escape(cell)}</{tag}>" for k, cell in zip(kinds, cells, strict=True))
            return "<tr>" + "".join(inner) + "</tr>"

        body = "".join(line("td", row) for row in rows)
        content = f"<thead>{line('th', header)}</thead><tbody>{body}</tbody>"
        if self._fold:
            summary = caption or f"Table: {', '.join(name for name in header if name)}"
            self._body.append(
                f"<details><summary>{escape(summary)}</summary>"
                f'<div class="scroll"><table>{content}</table></div></details>'
            )
        else:
            self._body.append(f'<div class="scroll"><table><caption>{escape(caption)}</caption>{content}</table></div>')

    def show(self, table: Table) -> None:
        """A table that knows its columns and its title."""
        self.table(table.header, table.rows, table.title, n_text=table.n_text)

    def figure(self, figure: go.Figure, caption: str = "") -> None:
        """A plotly figure; its toolbar downloads it as SVG."""
        section = self._sections[-1][1] if self._sections else ""
        layout: Any = figure.layout
        said = layout.title.text or re.split(r"[.;:](?:\s|$)", caption)[0]
        self.figures.append(Drawn(figure=figure, words=_short(_words(section, self._heading, said))))
        download = {"format": "svg", "filename": self.figures[-1].words or "figure"}
        config = {**_PLOT, "toImageButtonOptions": download}
        plot = figure.to_html(full_html=False, include_plotlyjs=False, config=config)
        self._body.append(f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>")

    def attention(
        self,
        tokens: Sequence[str],
        patterns: Float[np.ndarray, "head query key"],
        names: Sequence[str],
        caption: str = "",
    ) -> None:
        """A CircuitsVis view of heads on one sequence; keys after a query are grey, unless some head attends to one."""
        self._n_views += 1
        place = f"attention-{self._n_views}"
        properties = {
            "tokens": [escape(token, quote=False) for token in tokens],
            "attention": [[[round(float(w), 4) for w in row] for row in head] for head in patterns],
            "attentionHeadNames": list(names),
            "maskUpperTri": not bool(np.triu(patterns, 1).any()),
        }
        data = json.dumps(properties).replace("</", "<\\/")
        self._body.append(
            f'<figure><figcaption>{escape(caption)}</figcaption><div class="view"><div id="{place}"></div></div>'
            f'<script>CircuitsVis.render("{place}", CircuitsVis.AttentionHeads, {data});</script></figure>'
        )

    def _repr_html_(self) -> str:
        """The page in its own frame, for a notebook and for what is exported of it."""
        fit = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
        style = "width: 100%; height: 600px; border: 0"
        return f'<iframe srcdoc="{escape(self.html())}" onload="{fit}" style="{style}"></iframe>'

    def html(self) -> str:
        """The whole page."""
        scripts = []
        if self.figures:
            scripts.append(get_plotlyjs())
        if self._n_views:
            scripts.append((files(circuitsvis) / "dist" / "cdn" / "iife.js").read_text())
        if self._fold:
            scripts.append(_UNFOLD)
        head = "".join("<script>" + script.replace("</script", "<\\/script") + "</script>" for script in scripts)
        style = (files("mnemoscope.report") / "page.css").read_text() + self._style
        contents = "".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title in self._sections)
        navigation = f"<nav>{contents}</nav>" if len(self._sections) > 1 else ""
        return (
            f"{_START}{escape(self._title)}</title><style>{style}</style>{head}</head><body>"
            f'<h1>{escape(self._title)}</h1><p class="lead">{escape(self._lead)}</p>{navigation}'
            f"{''.join(self._body)}</body></html>\n"
        )


def _words(*texts: str) -> str:
    """Texts as lower-case words with hyphens between them; HTML and what is no letter or digit is left out."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"<[^>]*>", " ", " ".join(texts)).lower()).strip("-")


def _short(words: str) -> str:
    """As many of the words as a file's name should have."""
    return words if len(words) <= _LONGEST else words[: _LONGEST + 1].rpartition("-")[0]


def title_of(file: Path) -> str | None:
    """The title of a page that `Page` made; None where another program made it, or it cannot be read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_START) + _LONGEST_TITLE).decode(errors="replace")
    except OSError:
        return None
    return unescape(start[len(_START) :].partition("</title>")[0]) if start.startswith(_START) else None


def attention_view(page: Page, example: xr.Dataset, caption: str, names: Mapping[str, str] | None = None) -> None:
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
    page.attention([str(token) for token in example.token.values], chosen, called, caption)


def _of_heads(array: xr.DataArray) -> xr.DataArray:
    """The array with axes for layers and heads, also where a single one was selected, which drops its axis."""
    return array.expand_dims([axis for axis in ("layer", "head") if axis not in array.dims])
