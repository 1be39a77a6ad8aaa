"""Pictures of who knows what after how many layers, and of who fetches what from where."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.report import LAYOUT, colours_of
from mnemoscope.systems.retrieval.tasks import symbol_name


def place_name(place: int) -> str:
    """A place of a chain in words: `query A`, `A in AB`, `B in AB`."""
    if place == 0:
        return f"query {symbol_name(0)}"
    step = (place + 1) // 2
    pair = symbol_name(step - 1) + symbol_name(step)
    return f"{symbol_name(place // 2)} in {pair}"


def reach_figure(first: xr.DataArray) -> go.Figure:
    """The layer after which each place of a chain can know each symbol and each code, from `first_layers`."""
    text = [["" if math.isnan(value) else f"{value:.0f}" for value in row] for row in first.values]
    heat = go.Heatmap(
        z=first.values,
        x=[_piece_name(piece) for piece in first.piece.values.tolist()],
        y=[place_name(place) for place in first.place.values.tolist()],
        text=text,
        texttemplate="%{text}",
        colorscale="Blues_r",
        colorbar={"title": "layers"},
        hovertemplate="%{y} knows %{x} after %{z} layers<extra></extra>",
    )
    figure = go.Figure(heat).update_layout(**LAYOUT, height=120 + 34 * len(first.place))
    return figure.update_yaxes(autorange="reversed", title="place").update_xaxes(title="piece of information")


def _piece_name(piece: str) -> str:
    number = int(piece[1:])
    return symbol_name(number) if piece[0] == "x" else "code of the query" if number == 0 else f"code of pair {number}"


def circuit_figure(rise: xr.DataArray) -> go.Figure:
    """The paths of a circuit: places of a chain from left to right, layers upwards.

    An arrow goes from the place attended to, before a layer, to the place that attends, after it. Its width grows with
    `rise` of the whole answer, from `path_table`.
    """
    layers, numbers, names = (rise[dim].values.tolist() for dim in ("layer", "head", "place"))
    finite = np.argwhere(np.isfinite(rise.values)).tolist()
    paths = [(layers[a], numbers[b], names[c], names[d], float(rise.values[a, b, c, d])) for a, b, c, d in finite]
    places = [*(int(place) for place in rise.place.values if place), 0]
    at = {place: x for x, place in enumerate(places)}
    used = sorted({path[0] for path in paths})
    figure = go.Figure(_dots(len(places), len(used) + 1))
    for (layer, head, place, to, value), colour in zip(paths, _colours(paths), strict=True):
        y = used.index(layer)
        x = [at[to], at[place]]
        what = f"L{layer}H{head}: {place_name(place)} fetches from {place_name(to)}<br>without it +{value:.3f}"
        line = {"color": colour, "width": 1.5 + 4 * min(max(value, 0.0), 1.0)}
        marker = {"symbol": "arrow", "size": 12, "angleref": "previous"}
        style = {"line": line, "marker": marker, "hovertemplate": f"{what}<extra></extra>"}
        figure.add_trace(go.Scatter(x=x, y=[y, y + 1], mode="lines+markers", **style))
        label = {"text": f"L{layer}H{head} {symbol_name(to // 2)}", "font": {"size": 11, "color": colour}}
        between = {"x": 0.4 * x[0] + 0.6 * x[1], "y": y + 0.6}
        figure.add_annotation(**between, **label, showarrow=False, bgcolor="rgba(255,255,255,0.85)")
    figure.update_xaxes(tickvals=list(range(len(places))), ticktext=[place_name(place) for place in places])
    ticks = ["inputs", *(f"after layer {layer}" for layer in used)]
    figure.update_yaxes(tickvals=list(range(len(ticks))), ticktext=ticks, range=[-0.3, len(used) + 0.3])
    layout = {**LAYOUT, "margin": {"l": 100, "r": 20, "t": 20, "b": 60}, "showlegend": False}
    return figure.update_layout(**layout, height=150 + 100 * max(1, len(used)))


def _dots(n_places: int, n_levels: int) -> go.Scatter:
    """The residual stream of every place before and after the layers that are shown."""
    return go.Scatter(
        x=list(range(n_places)) * n_levels,
        y=[level for level in range(n_levels) for _ in range(n_places)],
        mode="markers",
        marker={"size": 9, "color": "#c9ced8"},
        hoverinfo="skip",
    )


def _colours(paths: Sequence[tuple[int, int, int, int, float]]) -> list[str]:
    own = colours_of(dict.fromkeys(f"L{layer}H{head}" for layer, head, *_ in paths))
    return [own[f"L{layer}H{head}"] for layer, head, *_ in paths]
