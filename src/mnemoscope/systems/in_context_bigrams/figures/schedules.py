"""In-context accuracy and memories along training, where matrices are held back in turn."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.systems.in_context_bigrams.figures.bands import INK, MEMORY_COLOURS, MEMORY_NAMES, band
from mnemoscope.viz import LAYOUT


def schedules(trajectories: Mapping[str, xr.Dataset], *, freed: Mapping[str, int] | None = None) -> go.Figure:
    """A panel a schedule: the mean over seeds, and their range.

    Args:
        trajectories: Title of a schedule to measures over (seed, step).
        freed: Title to the step from which everything is learned, drawn as a dotted line.
    """
    figure = make_subplots(1, len(trajectories), subplot_titles=list(trajectories), shared_yaxes=True)
    for column, (title, found) in enumerate(trajectories.items(), 1):
        for name, colour in MEMORY_COLOURS.items():
            dash = "dot" if name == "recall_previous_token" else "solid"
            band(figure, found[name], MEMORY_NAMES[name], colour, column=column, dash=dash, legend=column == 1)
        accuracy = found["accuracy_in_context"]
        band(figure, accuracy, "in-context accuracy", INK, column=column, dash="dash", legend=column == 1)
        if freed is not None and title in freed:
            _mark(figure, freed[title], column)
    figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_yaxes(title="share", row=1, col=1)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=420)


def _mark(figure: go.Figure, step: int, column: int) -> None:
    """A line where what was held back becomes free."""
    note = {"annotation_text": " all free", "annotation_position": "bottom right", "annotation_font_size": 11}
    line = {"dash": "dot", "color": "#5b6577", "width": 1.5}
    figure.add_vline(x=step, line=line, **{"row": 1, "col": column}, **note)
