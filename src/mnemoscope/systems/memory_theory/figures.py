"""Capacity against the number of parameters, both logarithmic, with fitted lines and the published slope."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.systems.memory_theory.analyses.exponents import LAW, amounts, growth, interval
from mnemoscope.viz import LAYOUT, colours_of


def fitted_band(found: xr.Dataset) -> xr.DataArray:
    """N ln N on the lines fitted to each draw, as their mean on the logarithmic scale and its 95 % interval.

    Args:
        found: `capacity` over d and draw, and `parameters` over d.

    Returns:
        Over summary (mean, low, high) and d.
    """
    lines = growth(found.capacity, found.parameters).sel(law=LAW, drop=True)
    logs = interval(lines.intercept + lines.slope * np.log(found.parameters))
    return logs.copy(data=np.exp(logs.values))


def capacity_figure(found: Mapping[str, xr.Dataset]) -> go.Figure:
    """N ln N against the number of parameters: a dot per draw, the fit of each memory, and a line of slope 1.

    Args:
        found: By name of a memory, `capacity` over d and draw and `parameters` over d.
    """
    figure = go.Figure()
    for (name, each), colour in zip(found.items(), colours_of(found).values(), strict=True):
        figure.add_traces(_memory(name, each, colour))
    sizes = [float(p) for each in found.values() for p in each.parameters]
    ends = [min(sizes), max(sizes)] if sizes else []
    figure.add_scatter(x=ends, y=ends, mode="lines", name="slope 1", line={"color": "#555", "dash": "dash", "width": 1})
    figure.update_xaxes(title="parameters (d², αd² for the MLP)", type="log")
    figure.update_yaxes(title="N ln N", type="log")
    return figure.update_layout(**LAYOUT, height=480)


def _memory(name: str, found: xr.Dataset, colour: str) -> list[go.Scatter]:
    parameters, band = found.parameters.values.astype(float), fitted_band(found)
    amount = amounts(found.capacity).sel(law=LAW).transpose("d", "draw")
    style = {"legendgroup": name, "line": {"color": colour, "width": 1.5}}
    dots = go.Scatter(
        x=np.repeat(parameters, amount.sizes["draw"]),
        y=amount.values.ravel(),
        text=[f"{name}, d = {d}, draw {draw}" for d in found.d.values for draw in found.draw.values],
        mode="markers",
        marker={"color": colour, "size": 5, "opacity": 0.6},
        legendgroup=name,
        showlegend=False,
        hovertemplate="%{text}: N ln N = %{y:.0f}<extra></extra>",
    )
    low, mean, high = (band.sel(summary=end).values for end in ("low", "mean", "high"))
    line = go.Scatter(x=parameters, y=mean, mode="lines", name=name, **style)
    area = go.Scatter(
        x=[*parameters, *parameters[::-1]],
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
