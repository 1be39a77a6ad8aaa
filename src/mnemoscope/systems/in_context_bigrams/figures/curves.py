"""Lines over training steps, mean over seeds and range: losses, accuracy and memories by configuration."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots

from mnemoscope.report import LAYOUT, PALETTE

INK, SOFT = "#1d2433", "#8791a3"
MEMORY_COLOURS = {
    "recall_copied_token": PALETTE[0],
    "recall_remapped_copy": PALETTE[1],
    "recall_previous_token_early": PALETTE[2],
    "recall_previous_token": "#8fbfa3",
}
MEMORY_NAMES = {
    "recall_copied_token": "W<sub>O</sub><sup>2</sup> copied token",
    "recall_remapped_copy": "W<sub>K</sub><sup>2</sup> remapped copy",
    "recall_previous_token_early": "W<sub>K</sub><sup>1</sup> previous token, first quarter",
    "recall_previous_token": "W<sub>K</sub><sup>1</sup> previous token, all",
}
"""Names of measures in the figures; matrices as in the paper, which counts layers from 1."""


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
    """Add the mean over seeds to a panel as a line in #rrggbb, and their range as a band; values: (seed, step)."""
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


LOSSES = {"loss_in_context": ("in-context", PALETTE[0]), "loss_global": ("global bigrams", PALETTE[1])}
OUTPUTS = {"uniform": PALETTE[0], "bigram": PALETTE[1]}


def losses(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """Loss over (seed, step) where the context gives outputs, and where only global bigrams help, by setting."""
    figure = make_subplots(1, len(trajectories), subplot_titles=list(trajectories), shared_yaxes=True)
    for column, found in enumerate(trajectories.values(), 1):
        for measure, (name, colour) in LOSSES.items():
            band(figure, found[measure], name, colour, column=column, legend=column == 1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="loss (nats)", row=1, col=1)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def outputs(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """Accuracy on either distribution of outputs, and two memories, over (seed, step), by that of training."""
    titles = ("in-context accuracy", "W<sub>O</sub><sup>2</sup>: recall", "W<sub>F</sub>: KL from the bigrams (nats)")
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.07)
    for trained, found in trajectories.items():
        colour = OUTPUTS[trained]
        for tested in OUTPUTS:
            name = f"trained on {trained}, tested on {tested}"
            dash = "solid" if tested == trained else "dash"
            band(figure, found[f"accuracy_in_context_{tested}_outputs"], name, colour, dash=dash)
        for column, measure in ((2, "recall_copied_token"), (3, "feed_forward_kl")):
            band(figure, found[measure], f"trained on {trained}", colour, column=column, legend=False)
    for column in (1, 2):
        figure.update_yaxes(range=[-0.03, 1.05], row=1, col=column)
    figure.update_yaxes(rangemode="tozero", row=1, col=3)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def schedules(trajectories: Mapping[str, xr.Dataset], *, freed: Mapping[str, int] | None = None) -> go.Figure:
    """One panel per schedule: the mean over seeds, and their range, of measures over (seed, step).

    A dotted line marks the step in `freed`, by title, from which everything is learned.
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
    """A line where what was frozen becomes free."""
    note = {"annotation_text": " all free", "annotation_position": "bottom right", "annotation_font_size": 11}
    line = {"dash": "dot", "color": "#5b6577", "width": 1.5}
    figure.add_vline(x=step, line=line, **{"row": 1, "col": column}, **note)
