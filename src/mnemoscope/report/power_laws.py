"""Amounts against sizes, both logarithmic, with the lines that were fitted to them."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.report.figures import LAYOUT, colours_of


def power_law_figure(found: Mapping[str, xr.Dataset], *, amount: str, size: str) -> go.Figure:
    """A dot for every draw and size, the fitted line of each set with its interval, and a line of slope 1.

    Each dataset has `size`, `amount` over draw, and `fit`, the fitted amounts, over summary (mean, low, high), all over
    one dimension of sizes. The arguments `amount` and `size` are the titles of the axes.
    """
    figure = go.Figure()
    for (name, each), colour in zip(found.items(), colours_of(found).values(), strict=True):
        figure.add_traces(_set(name, each, colour))
    sizes = [float(value) for each in found.values() for value in each["size"]]
    ends = [min(sizes), max(sizes)] if sizes else []
    figure.add_scatter(x=ends, y=ends, mode="lines", name="slope 1", line={"color": "#555", "dash": "dash", "width": 1})
    figure.update_xaxes(title=size, type="log")
    figure.update_yaxes(title=amount, type="log")
    return figure.update_layout(**LAYOUT, height=480)


def _set(name: str, found: xr.Dataset, colour: str) -> list[go.Scatter]:
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
