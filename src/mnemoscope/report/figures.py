"""The common ground of plotly figures, colours, layout, seeds as dots or lines; heatmaps; and fits of power laws."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from jaxtyping import Bool, Float
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from mnemoscope.core import positions
from mnemoscope.core.errors import format_rounded

PALETTE = ("#1b4f9e", "#d97706", "#0f8a6a", "#9a3b8f", "#5b6577", *qualitative.Dark24)
"""The first two differ in lightness too: on a grey print, and to readers who do not tell red from green or blue from
yellow."""
COLOURS = {"train": "#8a93a3", "test": "#1d2433", "model": PALETTE[0]}
"""Colours of the losses, which no colour of `assign_colours` repeats, and of a model beside an exact predictor."""
LAYOUT = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
    "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
}
"""The legend stands at the lower edge of a figure, which makes room for it below the names on the axis."""
ROW_HEIGHT = 26
MAX_CELLS_WITH_TEXT = 400
TOKEN_AXES = ("token", "query_token", "key_token", "source_token", "logit")
"""Axes that are numbered by tokens."""
_SELF_EXPLAINED = ("role", "component", "mechanism")
"""Axes whose labels say what they are."""
_UPRIGHT = 12
"""Most names of several lines below all panels where a page is narrow."""
_LETTER, _ROW_TITLE, _NARROWEST = 7, 34, 500
"""Pixels: a letter in the name of a row, its distance and title beside it, and all panels where a page is narrow."""


def assign_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of several names, by their place."""
    return dict(zip(names, cycle(PALETTE)))


def break_names(names: Sequence[str], *, panels: int = 1) -> list[str]:
    """Names below an axis, word below word where there is room in so many panels beside each other; else in one line,
    which is turned.
    """
    return [name.replace(" ", "<br>") for name in names] if len(names) * panels <= _UPRIGHT else list(names)


def bars_with_dots(
    cells: Sequence[xr.DataArray],
    places: Sequence[float],
    *,
    name: str,
    colour: str,
    width: float,
    legend: bool,
    labels: Sequence[str] | None = None,
) -> list[go.Bar | go.Scatter]:
    """A bar at the mean over seeds of every cell, and a dot per seed: two traces that the legend switches together.

    Each of `cells` is over seed, and `places` has the middle of each bar. `labels` name the cells where one points at a
    dot; with them the bars lie, without them they stand.
    """
    flat = labels is not None
    across, along = ("y", "x") if flat else ("x", "y")
    style = {"name": name, "legendgroup": name, "marker_color": colour}
    shape = {"width": width, "opacity": 0.35, "orientation": "h" if flat else None, "showlegend": legend}
    bars = go.Bar({across: places, along: [float(cell.mean()) for cell in cells]}, **shape, **style)
    named = zip(labels, cells, strict=True) if flat else ()
    text = [f"{label}, seed {seed}" for label, cell in named for seed in cell.seed.values]
    dots = go.Scatter(
        {
            across: [place for place, cell in zip(places, cells, strict=True) for _ in cell],
            along: [float(value) for cell in cells for value in cell],
        },
        text=text or None,
        mode="markers",
        marker_size=5,
        showlegend=False,
        hovertemplate="%{text}: %{x:.3f}<extra></extra>" if flat else "%{y:.3f}<extra></extra>",
        **style,
    )
    return [bars, dots]


def seed_lines(
    values: xr.DataArray, name: str, colour: str, hover: str, *, mode: str | None = None
) -> list[go.Scatter]:
    """A line per seed over the other dimension, which the legend switches together.

    `hover` is plotly's template for the text after name and seed where one points at a line. `mode` is plotly's, such
    as `lines`; none: plotly chooses by the number of points.
    """
    (x,) = (str(dim) for dim in values.dims if dim != "seed")
    return [
        go.Scatter(
            x=values[x].values,
            y=values.isel(seed=i).values,
            mode=mode,
            line={"color": colour, "width": 1.2},
            opacity=0.75,
            name=name,
            legendgroup=name,
            showlegend=i == 0,
            hovertemplate=f"{name}, seed {int(seed)}: {hover}<extra></extra>",
        )
        for i, seed in enumerate(values.seed.values)
    ]


def heatmaps(
    panels: Mapping[str, xr.DataArray],
    *,
    low: float | None = None,
    high: float | None = None,
    columns: int = 2,
    digits: str = ".2f",
    symbols: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> go.Figure:
    """One heatmap for each panel, on one scale.

    An array's last dimension runs along x; the others are stacked into rows. Without `low` the scale starts at 0, or at
    minus `high` if some values are negative. Without `high` it ends at the greatest absolute value. `symbols` are the
    names of all tokens, for axes of tokens; none: tokens have numbers. `outputs` are those of logits; none: `symbols`.
    """
    names: dict[str, Sequence[str]] = {} if symbols is None else dict.fromkeys(TOKEN_AXES, symbols)
    flat = [_flatten(array, names if outputs is None else {**names, "logit": outputs}) for array in panels.values()]
    finite = [abs(float(v)) for panel in flat for v in panel.values.ravel() if math.isfinite(v)]
    high = (max(finite, default=1.0) or 1.0) if high is None else high
    negative = any(float(array.min()) < 0 for array in panels.values())
    low = (-high if negative else 0.0) if low is None else low
    columns = min(columns, len(flat))
    rows = math.ceil(len(flat) / columns)
    height = 110 + rows * (100 + ROW_HEIGHT * max(len(panel.rows) for panel in flat))
    named = [i for i, panel in enumerate(flat) if i % columns == 0 or panel.rows != flat[i - i % columns].rows]
    longest = max((len(name) for i in named if i % columns for name in flat[i].rows), default=0)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=list(panels),
        vertical_spacing=min(0.35, 90 / height),
        horizontal_spacing=min(0.4 / columns, 0.04 + (_ROW_TITLE + _LETTER * longest) / _NARROWEST * bool(longest)),
    )
    for i, panel in enumerate(flat):
        heat = go.Heatmap(
            z=panel.values,
            x=panel.columns,
            y=panel.rows,
            coloraxis="coloraxis",
            hovertemplate=f"{panel.row_word} %{{y}}, {panel.column_word} %{{x}}: %{{z:.3f}}<extra></extra>".lstrip(),
        )
        if panel.values.size <= MAX_CELLS_WITH_TEXT and len(panel.columns) <= 16:
            heat.text = [["" if math.isnan(v) else format_rounded(v, digits) for v in row] for row in panel.values]
            heat.texttemplate = "%{text}"
        row, column = i // columns + 1, i % columns + 1
        figure.add_trace(heat, row, column)
        figure.update_xaxes(title=panel.column_title, row=row, col=column)
        title = {"text": panel.row_title if i in named else "", "standoff": 6}
        figure.update_yaxes(title=title, showticklabels=i in named, row=row, col=column)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    scale = "RdBu" if low < 0 else "Blues"
    figure.update_layout(**LAYOUT, height=height)
    return figure.update_coloraxes(cmin=low, cmax=high, colorscale=scale, reversescale=low < 0, colorbar_thickness=12)


def add_marks(figure: go.Figure, panel: int, marked: Mapping[str, Bool[np.ndarray, "..."]]) -> None:
    """Put signs on cells of a panel of `heatmaps`, in the shape of its array: behind the number, if cells have one."""
    heat: Any = [trace for trace in figure.data if isinstance(trace, go.Heatmap)][panel]
    texts = [[""] * len(heat.x) for _ in heat.y] if heat.text is None else [list(row) for row in heat.text]
    for sign, where in marked.items():
        for row, column in np.argwhere(where.reshape(len(heat.y), len(heat.x))):
            texts[row][column] = f"{texts[row][column]} {sign}".strip()
    heat.update(text=texts, texttemplate="%{text}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Panel:
    """A matrix with the names of its rows and columns, their titles, and what stands before a name in a sentence."""

    values: Float[np.ndarray, "row column"]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    row_word: str
    column_word: str


def _flatten(array: xr.DataArray, symbols: Mapping[str, Sequence[str]]) -> _Panel:
    """A matrix of rows by the last dimension; rows of several dimensions name each, and have no title."""
    *others, x = (str(dim) for dim in array.dims)
    rows = [""]
    for dim in others:
        values = _axis_labels(array, dim, symbols)
        if len(others) > 1 and dim not in _SELF_EXPLAINED:
            values = [f"{positions.axis_word(dim)} {value}" for value in values]
        rows = [f"{label} {value}".strip() for label in rows for value in values]
    alone = others[0] if len(others) == 1 and others[0] not in _SELF_EXPLAINED else ""
    return _Panel(
        values=array.values.reshape(len(rows), -1),
        rows=rows,
        columns=_axis_labels(array, x, symbols),
        row_title=positions.axis_title(alone),
        column_title=positions.axis_title(x),
        row_word=positions.axis_word(alone),
        column_word=positions.axis_word(x),
    )


def _axis_labels(array: xr.DataArray, axis: str, symbols: Mapping[str, Sequence[str]]) -> list[str]:
    """The labels along an axis: tokens by their symbols, positions by their names."""
    if axis in symbols:
        return [symbols[axis][int(token)] for token in array[axis].values]
    return positions.axis_labels(array, axis)


def power_law_figure(found: Mapping[str, xr.Dataset], *, amount: str, size: str) -> go.Figure:
    """A dot for every draw and size, the fitted line of each set with its interval, and a line of slope 1.

    Each dataset has `size`, `amount` over draw, and `fit`, the fitted amounts, over summary (mean, low, high), all over
    one dimension of sizes. The arguments `amount` and `size` are the titles of the axes.
    """
    figure = go.Figure()
    for (name, each), colour in zip(found.items(), assign_colours(found).values(), strict=True):
        figure.add_traces(_set_traces(name, each, colour))
    sizes = [float(value) for each in found.values() for value in each["size"]]
    ends = [min(sizes), max(sizes)] if sizes else []
    figure.add_scatter(x=ends, y=ends, mode="lines", name="slope 1", line={"color": "#555", "dash": "dash", "width": 1})
    figure.update_xaxes(title=size, type="log")
    figure.update_yaxes(title=amount, type="log")
    return figure.update_layout(**LAYOUT, height=480)


def _set_traces(name: str, found: xr.Dataset, colour: str) -> list[go.Scatter]:
    (dim,) = (str(dim) for dim in found["size"].dims)
    sizes, values = found["size"].values.astype(float), found["amount"].transpose(dim, "draw")
    labels = [f"{name}, {dim} {at}, draw {draw}" for at in found[dim].values for draw in found.draw.values]
    low, mean, high = (found["fit"].sel(summary=end).values for end in ("low", "mean", "high"))
    dots = go.Scatter(
        x=np.repeat(sizes, values.sizes["draw"]),
        y=values.values.ravel(),
        text=labels,
        mode="markers",
        marker={"color": colour, "size": 5, "opacity": 0.6},
        legendgroup=name,
        showlegend=False,
        hovertemplate="%{text}: %{y:.0f}<extra></extra>",
    )
    line = go.Scatter(x=sizes, y=mean, mode="lines", name=name, legendgroup=name, line={"color": colour, "width": 1.5})
    area = go.Scatter(
        x=[*sizes, *sizes[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        mode="none",
        fillcolor=colour,
        opacity=0.2,
        legendgroup=name,
        showlegend=False,
        hoverinfo="skip",
    )
    return [area, line, dots]
