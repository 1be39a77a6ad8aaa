"""Training curves of any task, curves of measures over checkpoints, and the onsets of these measures.

A loss, or a divergence, has its onset at the first kept step from which it has fallen half of the way from its first to
its smallest value and stays there; any other measure at the first from which it stays at one half or more.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.analyses.onsets import ONSET_THRESHOLD, falls_with_learning, first_step
from mnemoscope.report.figures import COLOURS, LAYOUT, assign_colours, seed_lines
from mnemoscope.report.tables import Table, mean_with_range

_HOVER = "%{y:.4f} at step %{x}"


def skills_in(metrics: xr.Dataset) -> list[str]:
    """The skills whose accuracy on unseen sequences was logged."""
    names = [str(name) for name in metrics.data_vars if str(name).startswith("test_")]
    return [name.removeprefix("test_") for name in names if not name.startswith("test_loss")]


def parts_in(metrics: xr.Dataset) -> list[str]:
    """The further parts of which losses on unseen sequences were logged: parts of vectors, skills, subgroups."""
    start = "test_loss_"
    return [str(name).removeprefix(start) for name in metrics.data_vars if str(name).startswith(start)]


def skill_curves(metrics: xr.Dataset) -> go.Figure:
    """Loss on training and on unseen sequences, and the accuracy of every skill on unseen ones; one line per seed.

    `metrics` is over (seed, step), from `Run.metrics`. Where no accuracy was logged, as for vectors, the losses of the
    parts take its place.
    """
    skills = skills_in(metrics)
    beside = assign_colours(skills or parts_in(metrics))
    titles = ("loss (nats)", "accuracy, unseen") if skills else ("squared error", "squared error of the parts, unseen")
    figure = make_subplots(1, 2, subplot_titles=titles)
    lines = [("training", 1, "train_loss", COLOURS["train"]), ("unseen", 1, "test_loss", COLOURS["test"])]
    prefix = "test_" if skills else "test_loss_"
    lines += [(name.replace("_", " "), 2, f"{prefix}{name}", colour) for name, colour in beside.items()]
    for name, column, variable, colour in lines:
        figure.add_traces(seed_lines(metrics[variable], name, colour, _HOVER), rows=1, cols=column)
    if skills:
        figure.update_yaxes(range=[-0.03, 1.03], row=1, col=2)
    figure.update_xaxes(title="step")
    return figure.update_layout(**LAYOUT, height=380)


def trajectory_curves(trajectory: xr.Dataset, panels: Mapping[str, Sequence[str]]) -> go.Figure:
    """Measures of every checkpoint over (seed, step), one line per seed; `panels` maps titles of panels to their
    measures.
    """
    figure = make_subplots(1, len(panels), subplot_titles=list(panels))
    colours = assign_colours(dict.fromkeys(name for group in panels.values() for name in group))
    for column, group in enumerate(panels.values(), 1):
        for name in group:
            lines = seed_lines(trajectory[name], name.replace("_", " "), colours[name], _HOVER)
            figure.add_traces(lines, rows=1, cols=column)
    figure.update_xaxes(title="step")
    return figure.update_layout(**LAYOUT, height=400)


MANY = 24
"""Most measures, losses aside, that have a row of their own without an onset."""


def onset_table(trajectory: xr.Dataset) -> Table:
    """For every measure: the number of seeds with an onset, its mean and range over these, and the last value.

    If many measures other than losses have no onset in any seed, they share one row. It gives their number and the
    largest of their last values.
    """
    rows: list[list[str]] = []
    never: dict[str, float] = {}
    for name, values in trajectory.data_vars.items():
        if not np.isfinite(values).any():
            continue  # models without such a layer
        onsets = first_step(values)
        reached, last = onsets[np.isfinite(onsets.values)], values.isel(step=-1)
        row = [
            str(name).replace("_", " "),
            "half-way down" if falls_with_learning(str(name)) else f"{ONSET_THRESHOLD:g}",
            mean_with_range(reached, ".0f") if reached.size else "never",
            f"{reached.size}/{onsets.size}",
            mean_with_range(last, ".3f"),
        ]
        rows.append(row)
        if not reached.size and not falls_with_learning(str(name)):
            never[row[0]] = float(last.max())
    if len(never) > MANY:
        n_seeds = trajectory.sizes["seed"]
        rows = [row for row in rows if row[0] not in never]
        rows.append([f"{len(never)} others", "–", "never", f"0/{n_seeds}", f"at most {max(never.values()):.3f}"])
    header = ("measure", "threshold", "onset, step", "in seeds", "at the end")
    return Table(name="onsets", title="onsets of measures", header=header, rows=rows)
