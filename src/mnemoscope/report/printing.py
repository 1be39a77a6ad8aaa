"""Figures for a paper, restyled for the width of a column, and as files: SVG, PDF or PNG.

A figure of a page is made for a screen. `for_print` returns another one for one column of a two-column paper, or for
both where panels stand beside each other. It has text of 8 points, axis lines, no grid and a white background. Curves,
dots and bars that differ in colour also differ in dashes, symbols and hatching, to be told apart on a grey print.
`kaleido <https://github.com/plotly/kaleido>`_ draws them in a Chrome or Chromium on the machine, without the network.
"""

import struct
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import plotly.graph_objects as go

from mnemoscope.core.errors import InputError

_Figure = Any
"""A plotly figure, whose attributes are made at run time."""
COLUMN, BOTH = 3.25, 6.75
"""Inches: the width of a column, and of both with what is between them."""
PER_INCH = 96
"""Pixels of a browser, in which plotly counts."""
_POINT = PER_INCH / 72
_TEXT = 8 * _POINT
_ON_PAGE = 13
"""Size of text on a page, in pixels; heights shrink as text does."""
_LETTER = 0.6 * _TEXT
"""About the width of a letter, in pixels."""
_DRAWN = 0.8
"""Share of the width that names of rows and a colour bar leave for panels."""
_TICK = 10
_SMALLEST = 4.5 * _POINT
_FLATTEST = 0.8
"""Smallest height of a single panel with numbers on both axes, as a share of its width."""
_FONT = {"family": "Arial, Helvetica, Liberation Sans, sans-serif", "size": _TEXT, "color": "#111"}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross")
_HATCHES = ("", "/", "x", ".", "-", "|")


def for_print(figure: go.Figure, *, width: float | None = None) -> go.Figure:
    """A copy of a figure of a page for a paper.

    `width` is in inches; none: 3.25, or 6.75 where panels stand beside each other. Raises InputError where it is not
    positive.
    """
    if width is not None and not width > 0:
        raise InputError(f"the width of a figure must be a positive number of inches; got {width}")
    printed: _Figure = go.Figure(figure)
    columns = _panel_ends(printed)
    wide = (width or (BOTH if len(columns) > 1 else COLUMN)) * PER_INCH
    _distinguish_traces(printed, "dash", _DASHES)
    _distinguish_traces(printed, "symbol", _SYMBOLS)
    _distinguish_traces(printed, "hatch", _HATCHES)
    _space_panels(printed, columns, wide)
    n_lines = _wrap_titles(printed, wide / len(columns))
    _fit_cells(printed, wide)
    printed.update_layout(
        template="simple_white",
        width=round(wide),
        height=round(_height(printed, wide)),
        font=_FONT,
        margin={"l": 8, "r": 8, "t": 8 + n_lines * 1.25 * _TEXT, "b": 8, "autoexpand": True},
        paper_bgcolor="white",
        plot_bgcolor="white",
    )
    for shape in printed.select_shapes():
        shape.opacity = 1 if shape.opacity is None else shape.opacity  # the template's would fade margins
    printed.update_legends(
        font_size=_TEXT, orientation="h", yref="container", y=0, yanchor="bottom", x=0, tracegroupgap=0
    )
    axis = {"tickfont": {"size": _TEXT}, "title": {"font": {"size": _TEXT}, "standoff": 4}, "linecolor": "#111"}
    printed.update_xaxes(**axis, automargin=True)
    printed.update_yaxes(**axis, automargin=True)
    bar = {"thickness": 8, "tickfont": {"size": _TEXT}, "title": {"font": {"size": _TEXT}}, "outlinewidth": 0}
    printed.update_coloraxes(colorbar=bar)
    return printed.update_traces(colorbar=bar, selector=lambda trace: trace.type == "heatmap" and not trace.coloraxis)


def _distinguish_traces(figure: _Figure, what: Literal["dash", "symbol", "hatch"], choices: Sequence[str]) -> None:
    """Give traces of a panel a second difference besides the colour; one that a trace has is kept, and given to no
    other.
    """
    get, put, has = _ASPECTS[what]
    panels: dict[str, set[tuple[str, str]]] = {}
    taken: dict[tuple[str, str], set[str]] = {}
    traces = [trace for trace in figure.data if has(trace)]
    for trace in traces:
        panel = (trace.xaxis or "x", trace.yaxis or "y")
        panels.setdefault(_name(trace), set()).add(panel)
        if (own := get(trace)) is not None:
            taken.setdefault(panel, set()).add(str(own))
    given: dict[str, str] = {}
    for trace in traces:
        name = _name(trace)
        if get(trace) is not None:
            continue
        if name not in given:
            used = {each for panel in panels[name] for each in taken.get(panel, ())}
            given[name] = next((choice for choice in choices if choice not in used), choices[len(given) % len(choices)])
            for panel in panels[name]:
                taken.setdefault(panel, set()).add(given[name])
        put(trace, given[name])


def _name(trace: Any) -> str:
    return str(trace.legendgroup or trace.name or "")


def _is_line(trace: Any) -> bool:
    """True for a curve; outlines of bands are drawn without a line."""
    return trace.type == "scatter" and "lines" in (trace.mode or "lines") and trace.line.width != 0 and not trace.fill


def _is_dots(trace: Any) -> bool:
    return trace.type == "scatter" and trace.mode == "markers" and isinstance(trace.marker.color, str)


def _put_dash(trace: Any, dash: str) -> None:
    trace.line.dash = dash


def _put_symbol(trace: Any, symbol: str) -> None:
    trace.marker.symbol = symbol


def _put_hatch(trace: Any, hatch: str) -> None:
    trace.marker.pattern = {"shape": hatch, "solidity": 0.4, "fillmode": "replace"} if hatch else {}


_Aspect = tuple[Callable[[Any], Any], Callable[[Any, str], None], Callable[[Any], bool]]
_ASPECTS: Mapping[str, _Aspect] = {
    "dash": (lambda trace: trace.line.dash, _put_dash, _is_line),
    "symbol": (lambda trace: trace.marker.symbol, _put_symbol, _is_dots),
    "hatch": (lambda trace: trace.marker.pattern.shape, _put_hatch, lambda trace: trace.type == "bar"),
}


def _panel_ends(figure: _Figure) -> list[tuple[float, float]]:
    """The horizontal ends of panels that lie beside each other, as shares of the width."""
    domains = (axis.domain or (0.0, 1.0) for axis in figure.select_xaxes())
    return sorted({(low, high) for low, high in domains}) or [(0.0, 1.0)]


def _space_panels(figure: _Figure, columns: Sequence[tuple[float, float]], wide: float) -> None:
    """Make room between columns of panels for the names of rows, which are larger on paper than the gap allows for."""
    if any(end > start for (_, end), (start, _) in pairwise(columns)):
        return
    gaps = [start - end for (_, end), (start, _) in pairwise(columns)]
    names = [
        len(str(name))
        for trace in figure.select_traces("heatmap")
        for name in _visible_row_names(figure, trace, columns)
    ]
    needed = (max(names, default=0) * _LETTER + _TICK) / (_DRAWN * wide)
    if not gaps or not names or min(gaps) >= needed:
        return
    narrower = (1 - needed * len(gaps)) / sum(end - start for start, end in columns)
    moved, at = {}, 0.0
    for start, end in columns:
        moved[start, end] = (at, at + narrower * (end - start))
        at = moved[start, end][1] + needed
    for axis in figure.select_xaxes():
        axis.domain = moved[tuple(axis.domain)]
    for note in figure.select_annotations({"xref": "paper"}):
        for (start, end), (low, high) in moved.items():
            if start <= note.x <= end:
                note.x = low + (note.x - start) / (end - start) * (high - low)
                break


def _visible_row_names(figure: _Figure, heat: Any, columns: Sequence[tuple[float, float]]) -> Sequence[Any]:
    """Names of the rows of a heatmap that stand between it and the one left of it."""
    x, y = (f"{axis[0]}axis{axis[1:]}" for axis in (heat.xaxis or "x", heat.yaxis or "y"))
    first = tuple(figure.layout[x].domain or (0.0, 1.0)) == columns[0]
    return () if first or figure.layout[y].showticklabels is False or heat.y is None else heat.y


def _fit_cells(figure: _Figure, wide: float) -> None:
    """Numbers in the cells of heatmaps as large as the cells allow; none where they could not be read."""
    for heat in figure.select_traces("heatmap"):
        if heat.text is None or not len(heat.text):
            continue
        low, high = figure.layout[f"xaxis{(heat.xaxis or 'x')[1:]}"].domain or (0.0, 1.0)
        cell = _DRAWN * wide * (high - low) / max(1, len(heat.text[0]))
        size = min(_TEXT, cell / (0.62 * max(1, *(len(str(text)) for row in heat.text for text in row))))
        heat.update({"textfont": {"size": size}} if size >= _SMALLEST else {"texttemplate": "", "text": None})


def _wrap_titles(figure: _Figure, wide: float) -> int:
    """Break titles of panels and of the figure into lines that fit; returns the number of lines above the panels."""
    letters = max(8, int(wide / _LETTER))
    figure.update_annotations(font_size=_TEXT)
    lines = 0
    for note in figure.select_annotations():
        if note.xref == note.yref == "paper" and note.text and "<" not in note.text:
            note.text = "<br>".join(textwrap.wrap(note.text, letters))
        if note.xref == note.yref == "paper" and note.text and note.y is not None and note.y >= 0.99:
            lines = max(lines, note.text.count("<br>") + 1)
    if title := figure.layout.title.text:
        of_figure = textwrap.wrap(title, int(letters * 0.85))
        figure.update_layout(title={"text": "<br>".join(of_figure), "font": {"size": 9 * _POINT}, "yanchor": "top"})
        figure.update_layout(title={"y": 0.985, "yref": "container"})
        lines += len(of_figure)
    return lines


def _height(figure: _Figure, wide: float) -> float:
    """The height of the print in pixels: rows are as high as their text needs, curves not higher than wide."""
    height = (figure.layout.height or 400) * _TEXT / _ON_PAGE
    rows = {tuple(axis.domain or (0, 1)) for axis in figure.select_yaxes()}
    named = any(axis.tickvals is not None or axis.type == "category" for axis in figure.select_yaxes())
    plain = all(trace.type in ("scatter", "bar") for trace in figure.data)
    return min(height, _FLATTEST * wide) if plain and not named and len(rows) == 1 else height


Format = Literal["svg", "pdf", "png"]
DPI = 300
"""Dots per inch of a PNG."""


def draw(figures: Mapping[str, Any], formats: Sequence[Format]) -> Iterator[tuple[str, bytes]]:
    """Figures from `for_print` as files: each name with its ending, and the bytes.

    Raises InputError where kaleido is not installed, there is no browser, or it draws nothing.
    """
    kaleido = _kaleido()
    with TemporaryDirectory(prefix="mnemoscope-figures-") as place:
        wanted = [
            {
                "fig": figure.to_dict(),
                "path": str(Path(place) / f"{i}.{ending}"),
                "opts": {
                    "format": ending,
                    "width": figure.layout.width,
                    "height": figure.layout.height,
                    "scale": DPI / PER_INCH if ending == "png" else 1,
                },
            }
            for i, figure in enumerate(figures.values())
            for ending in formats
        ]
        try:  # formulas are not drawn, so that the network is not needed
            kaleido.write_fig_from_object_sync(wanted, kopts={"mathjax": False}, cancel_on_error=True)
        except kaleido.errors.ChromeNotFoundError:
            raise InputError(
                "figures as files need Chrome or Chromium, and none is found: install one, name its program in "
                "BROWSER_PATH, or run plotly_get_chrome"
            ) from None
        except Exception as error:  # of the browser, or of the pipes to it
            reason = " ".join(" ".join(map(str, error.args)).split()) or type(error).__name__
            raise InputError(f"the browser that draws figures as files failed: {reason}") from error
        for i, name in enumerate(figures):
            for ending in formats:
                content = (Path(place) / f"{i}.{ending}").read_bytes()
                yield f"{name}.{ending}", _with_resolution(content) if ending == "png" else content


def check_drawing() -> None:
    """Draw a point, so that what is missing is known before the work and not after it; raises as `draw` does."""
    dict(draw({"point": for_print(go.Figure(go.Scatter(y=[0])))}, ("svg",)))


def _kaleido() -> Any:
    try:
        import kaleido
        import kaleido.errors  # noqa: F401 (its names are read from kaleido)
    except ImportError:
        raise InputError("figures as files need kaleido: pip install 'mnemoscope[figures]'") from None
    return kaleido


def _with_resolution(png: bytes) -> bytes:
    """The picture with its dots per metre, so that LaTeX and word processors set it in its size."""
    per_metre = round(DPI / 0.0254)
    chunk = b"pHYs" + struct.pack(">IIB", per_metre, per_metre, 1)
    header = 8 + 25  # the signature, and the first part, which says how large the picture is
    return png[:header] + struct.pack(">I", 9) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[header:]
