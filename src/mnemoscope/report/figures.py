"""The common ground of plotly figures, colours, layout, seeds as dots or lines; heatmaps; and fits of power laws."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from mnemoscope.core import positions

PALETTE = ("#1b4f9e", "#d97706", "#0f8a6a", "#9a3b8f", "#5b6577", *qualitative.Dark24)
"""The first two differ in lightness too: on a grey print, and to readers who do not tell red from green or blue from
yellow."""
COLOURS = {"train": "#8a93a3", "test": PALETTE[0]}
"""The colours of splits."""
LAYOUT = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
    "legend": {"orientation": "h", "y": -0.22},
}
"""Fields of the layout that figures share."""
ROW_HEIGHT = 26
MAX_CELLS_WITH_TEXT = 400


def assign_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of several names, by their place."""
    return dict(zip(names, cycle(PALETTE)))


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
) -> go.Figure:
    """One heatmap for each panel, on one scale.

    An array's last dimension runs along x; the others are stacked into rows. Without `low` the scale starts at 0, or at
    minus `high` if some values are negative. Without `high` it ends at the greatest absolute value.
    """
    flat = {title: _flatten_rows(array) for title, array in panels.items()}
    finite = [abs(float(v)) for array, _ in flat.values() for v in array.values.ravel() if math.isfinite(v)]
    high = (max(finite, default=1.0) or 1.0) if high is None else high
    negative = any(float(array.min()) < 0 for array, _ in flat.values())
    low = (-high if negative else 0.0) if low is None else low
    columns = min(columns, len(flat))
    rows = math.ceil(len(flat) / columns)
    longest = max(len(name) for _, names in flat.values() for name in names)
    apart = {"vertical": min(0.35, 90 / _height(flat, rows)), "horizontal": min(0.3, 0.04 + 0.009 * longest)}
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=list(flat),
        vertical_spacing=apart["vertical"],
        horizontal_spacing=apart["horizontal"],
    )
    labels = [positions.axis_labels(array, str(array.dims[-1])) for array in panels.values()]
    for i, (array, names) in enumerate(flat.values()):
        x = str(array.dims[-1])
        heat = go.Heatmap(
            z=array.values,
            x=labels[i],
            y=names,
            coloraxis="coloraxis",
            hovertemplate=f"%{{y}}, {positions.axis_word(x)} %{{x}}: %{{z:.3f}}<extra></extra>",
        )
        if array.size <= MAX_CELLS_WITH_TEXT and array.sizes[x] <= 16:
            heat.text = [["" if math.isnan(v) else f"{v:{digits}}" for v in row] for row in array.values]
            heat.texttemplate = "%{text}"
        row, column = i // columns + 1, i % columns + 1
        figure.add_trace(heat, row, column)
        figure.update_xaxes(title=positions.axis_title(x), row=row, col=column)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    scale = "RdBu" if low < 0 else "Blues"
    figure.update_layout(**LAYOUT, height=_height(flat, rows))
    return figure.update_coloraxes(cmin=low, cmax=high, colorscale=scale, reversescale=low < 0, colorbar_thickness=12)


def _flatten_rows(array: xr.DataArray) -> tuple[xr.DataArray, list[str]]:
    """A matrix of rows by the last dimension, and the names of its rows."""
    *others, x = (str(dim) for dim in array.dims)
    if not others:
        return array.expand_dims("row"), [""]
    labels = [""]
    for dim in others:
        values = positions.axis_labels(array, dim)
        if dim not in ("role", "component", "mechanism"):
            values = [f"{positions.axis_word(dim)} {value}" for value in values]
        labels = [f"{label} {value}".strip() for label in labels for value in values]
    return xr.DataArray(array.values.reshape(len(labels), -1), dims=("row", x), coords={x: array[x].values}), labels


def _height(flat: Mapping[str, tuple[xr.DataArray, list[str]]], rows: int) -> int:
    return 110 + rows * (100 + ROW_HEIGHT * max(len(names) for _, names in flat.values()))


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
