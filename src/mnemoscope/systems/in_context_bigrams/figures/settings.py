"""Memories at the end of training, setting by setting."""

import math
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.systems.in_context_bigrams.figures.bands import MEMORY_NAMES
from mnemoscope.viz import LAYOUT

MEASURES = {**MEMORY_NAMES, "accuracy_in_context": "in-context accuracy"}


def settings(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """A row a setting, a column a measure: the mean over seeds at the last step, and their range under it.

    Args:
        trajectories: Name of a setting to measures over (seed, step); settings may have different steps.
    """
    last = [found.isel(step=-1) for found in trajectories.values()]
    values = np.array([[float(found[name].mean("seed")) for name in MEASURES] for found in last])
    text = [[_cell(found[name]) for name in MEASURES] for found in last]
    heat = go.Heatmap(
        z=values,
        x=[name.replace(" ", "<br>", 1) for name in MEASURES.values()],
        y=list(trajectories),
        text=text,
        texttemplate="%{text}",
        zmin=0,
        zmax=1,
        colorscale="Blues",
        xgap=2,
        ygap=2,
        showscale=False,
        hovertemplate="%{y}, %{x}: %{z:.3f}<extra></extra>",
    )
    figure = go.Figure(heat).update_yaxes(autorange="reversed", showgrid=False).update_xaxes(side="top", showgrid=False)
    margin = {"l": 20, "r": 20, "t": 70, "b": 20}
    return figure.update_layout({**LAYOUT, "margin": margin}, height=100 + 52 * len(trajectories))


def _cell(values: xr.DataArray) -> str:
    """Mean, and range where there are several seeds; nothing where it is not defined."""
    low, mean, high = (float(value) for value in (values.min(), values.mean(), values.max()))
    if math.isnan(mean):
        return ""
    return f"{mean:.2f}" + (f"<br><sub>{low:.2f} – {high:.2f}</sub>" if values.sizes["seed"] > 1 else "")
