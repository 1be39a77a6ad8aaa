"""Lines over training steps: the mean over seeds, and their range as a band."""

import plotly.graph_objects as go
import xarray as xr
from plotly.colors import hex_to_rgb

INK, SOFT = "#1d2433", "#8791a3"
MEMORY_COLOURS = {
    "recall_copied_token": "#1f5fbf",
    "recall_remapped_copy": "#c8501e",
    "recall_previous_token_early": "#2e8b57",
    "recall_previous_token": "#8fbfa3",
}
MEMORY_NAMES = {
    "recall_copied_token": "W<sub>O</sub><sup>2</sup> copied token",
    "recall_remapped_copy": "W<sub>K</sub><sup>2</sup> remapped copy",
    "recall_previous_token_early": "W<sub>K</sub><sup>1</sup> previous token, first quarter",
    "recall_previous_token": "W<sub>K</sub><sup>1</sup> previous token, all",
}
"""Measure of a trajectory to what the figures call it; matrices as in the paper, which counts layers from 1."""


def band(
    figure: go.Figure,
    values: xr.DataArray,
    name: str,
    colour: str,
    *,
    row: int = 1,
    column: int = 1,
    dash: str = "solid",
    legend: bool = True,
) -> None:
    """Add the mean over seeds as a line and, where there are several, their range as a band.

    Args:
        figure: With that panel.
        values: Over (seed, step).
        name: In the legend; lines of one name are switched together.
        colour: As #rrggbb.
        row: Of the panel, from 1.
        column: Of the panel, from 1.
        dash: Of the line.
        legend: Whether the line gets an entry.
    """
    steps, mean = values.step.values, values.mean("seed").values
    if values.sizes["seed"] > 1:
        outline = [*values.max("seed").values, *values.min("seed").values[::-1]]
        red, green, blue = hex_to_rgb(colour)
        filled = go.Scatter(
            x=[*steps, *steps[::-1]],
            y=outline,
            mode="lines",
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},0.15)",
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
        figure.add_trace(filled, row, column)
    line = go.Scatter(
        x=steps,
        y=mean,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        name=name,
        legendgroup=name,
        showlegend=legend,
        hovertemplate=f"{name}: %{{y:.3f}} at step %{{x}}<extra></extra>",
    )
    figure.add_trace(line, row, column)
