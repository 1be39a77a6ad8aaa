"""Training curves of any task, and curves of measures over checkpoints."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.viz.figures import COLOURS, LAYOUT, colours_of


def skills_in(metrics: xr.Dataset) -> list[str]:
    """The skills whose accuracy on unseen sequences was logged."""
    names = [str(name) for name in metrics.data_vars if str(name).startswith("test_")]
    return [name.removeprefix("test_") for name in names if not name.startswith("test_loss")]


def skill_curves(metrics: xr.Dataset) -> go.Figure:
    """Loss on training and on unseen sequences, and the accuracy of every skill on unseen ones; one line per seed.

    Args:
        metrics: Over (seed, step), from `Run.metrics`.
    """
    figure = make_subplots(1, 2, subplot_titles=("loss (nats)", "accuracy, unseen"))
    lines = [("training", 1, "train_loss", COLOURS["train"]), ("unseen", 1, "test_loss", "#111")]
    lines += [(name.replace("_", " "), 2, f"test_{name}", c) for name, c in colours_of(skills_in(metrics)).items()]
    for name, column, variable, colour in lines:
        _lines(figure, metrics[variable], name, colour, column)
    figure.update_yaxes(range=[-0.03, 1.03], row=1, col=2)
    figure.update_xaxes(title="step")
    return figure.update_layout(**LAYOUT, height=380)


def trajectory_curves(trajectory: xr.Dataset, panels: Mapping[str, Sequence[str]]) -> go.Figure:
    """Measures of every checkpoint, one panel per group and one line per seed.

    Args:
        trajectory: Over (seed, step).
        panels: Title of a panel to its measures.
    """
    figure = make_subplots(1, len(panels), subplot_titles=list(panels))
    colours = colours_of(dict.fromkeys(name for group in panels.values() for name in group))
    for column, group in enumerate(panels.values(), 1):
        for name in group:
            _lines(figure, trajectory[name], name.replace("_", " "), colours[name], column)
    figure.update_xaxes(title="step")
    return figure.update_layout(**LAYOUT, height=400)


def _lines(figure: go.Figure, values: xr.DataArray, name: str, colour: str, column: int) -> None:
    for i in range(values.sizes["seed"]):
        line = go.Scatter(
            x=values.step.values,
            y=values.isel(seed=i).values,
            line={"color": colour, "width": 1.2},
            opacity=0.75,
            name=name,
            legendgroup=name,
            showlegend=i == 0,
            hovertemplate=f"{name}, seed {int(values.seed[i])}: %{{y:.4f}} at step %{{x}}<extra></extra>",
        )
        figure.add_trace(line, 1, column)
