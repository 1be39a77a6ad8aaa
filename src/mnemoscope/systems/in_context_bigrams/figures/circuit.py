"""The three memories of the circuit: their recall, and the scores behind it."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.systems.in_context_bigrams.figures.bands import INK, MEMORY_COLOURS
from mnemoscope.viz import LAYOUT

BARS = {
    "previous token, early": ("W<sub>K</sub><sup>1</sup><br>previous token,<br>first quarter", "previous_token_early"),
    "previous token": ("W<sub>K</sub><sup>1</sup><br>previous token,<br>all positions", "previous_token"),
    "remapped copy": ("W<sub>K</sub><sup>2</sup><br>remapped copy", "remapped_copy"),
    "copied token": ("W<sub>O</sub><sup>2</sup><br>copied token", "copied_token"),
}
PANELS = {
    "previous_token": ("W<sub>K</sub><sup>1</sup>: previous token", "key: position", "query: position"),
    "remapped_copy": ("W<sub>K</sub><sup>2</sup>: remapped copy", "key: copy of token", "query: token"),
    "copied_token": ("W<sub>O</sub><sup>2</sup>: copied token", "logit of token", "attended token"),
}
LIMIT = 4
"""Standard deviations at which the colours end."""


def memory_bars(memories: xr.Dataset) -> go.Figure:
    """Recall of every memory: bars are means over seeds, dots seeds, lines across a bar chance.

    Args:
        memories: Over (seed, memory), from `induction_memories`.
    """
    figure = go.Figure()
    shown = [name for name in BARS if name in memories.memory.values]
    for place, name in enumerate(shown):
        at = memories.sel(memory=name)
        values, chance = at.recall.values, float(at.chance.mean())
        colour = MEMORY_COLOURS[f"recall_{BARS[name][1]}"]
        figure.add_bar(x=[place], y=[values.mean()], width=0.62, marker_color=colour, opacity=0.55, hoverinfo="skip")
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        figure.add_scatter(
            x=place + spread,
            y=values,
            mode="markers",
            marker={"color": colour, "size": 6, "line": {"color": "white", "width": 0.8}},
            text=[f"seed {int(seed)}: {value:.3f}" for seed, value in zip(at.seed.values, values, strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
        line = {"color": INK, "width": 1.5, "dash": "dot"}
        figure.add_shape(type="line", x0=place - 0.31, x1=place + 0.31, y0=chance, y1=chance, line=line)
    figure.update_xaxes(tickvals=list(range(len(shown))), ticktext=[BARS[name][0] for name in shown], showgrid=False)
    figure.update_yaxes(title="recall R", range=[-0.02, 1.05])
    figure.update_layout(showlegend=False, height=360)
    return figure.update_layout({**LAYOUT, "margin": {"l": 60, "r": 20, "t": 20, "b": 80}})


def memory_heatmaps(maps: xr.Dataset, *, n_pos: int | None = None) -> go.Figure:
    """Scores of every memory; a memory that is stored has a dark diagonal.

    Args:
        maps: From `memory_maps`, of one model.
        n_pos: How many positions, from the first; none: all.
    """
    figure = make_subplots(1, 3, subplot_titles=[title for title, _, _ in PANELS.values()], horizontal_spacing=0.09)
    for column, (name, (_, x, y)) in enumerate(PANELS.items(), 1):
        values = maps[name]
        if name == "previous_token" and n_pos is not None:
            values = values.isel(query=slice(n_pos - 1), key=slice(n_pos - 1))
        rows, columns = values.dims
        heat = go.Heatmap(
            z=values.values,
            x=[str(value) for value in values[columns].values],
            y=[str(value) for value in values[rows].values],
            coloraxis="coloraxis",
            hovertemplate=f"{y} %{{y}}, {x} %{{x}}: %{{z:.1f}}<extra></extra>",
        )
        figure.add_trace(heat, 1, column)
        figure.update_xaxes(title=x, type="category", nticks=8, row=1, col=column)
        figure.update_yaxes(title=y, type="category", nticks=8, autorange="reversed", row=1, col=column)
    figure.update_layout({**LAYOUT, "margin": {"l": 60, "r": 20, "t": 40, "b": 60}}, height=380)
    bar = {"thickness": 12, "title": {"text": "standard<br>deviations", "font": {"size": 11}}}
    return figure.update_coloraxes(cmin=-LIMIT, cmax=LIMIT, colorscale="RdBu", reversescale=True, colorbar=bar)
