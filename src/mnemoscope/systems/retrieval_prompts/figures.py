"""Accuracy of language models on retrieval questions as a figure and as tables, beside what was published."""

import math

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.report import LAYOUT, Number, Table, assign_colours, bar, single_number
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS

PUBLISHED = (
    ("equations", "1 to 5", "solved almost perfectly"),
    ("lives-with", "5", "great performance"),
    ("kingdoms", "5 steps", "great performance"),
    ("functions", "", "great performance"),
    ("relatives", "", "great performance"),
)
"""Sentences of the source on large language models; its accuracies stand in a figure only, and are not in its text."""


def accuracy_figure(found: xr.Dataset) -> go.Figure:
    """Accuracy over difficulty with exact intervals, a line per model, and the dashed line of chance.

    A row of panels per scoring, a panel per formulation that has difficulties, and one for those that have none; from
    `accuracies`, over (model, scoring, cell).
    """
    scorings, panels = [str(s) for s in found.scoring.values], _panel_cells(found)
    figure = make_subplots(
        len(scorings),
        len(panels),
        subplot_titles=[f"{panel}, {scoring}" for scoring in scorings for panel in panels],
        vertical_spacing=0.5 / max(2, 2 * len(scorings)),
        shared_yaxes=True,
    )
    colours = assign_colours([str(model) for model in found.model.values])
    for row, scoring in enumerate(scorings, 1):
        for column, labels in enumerate(panels.values(), 1):
            part = found.sel(scoring=scoring, cell=labels)
            for model, colour in colours.items():
                trace = _accuracy_trace(part.sel(model=model), model, colour, legend=row == column == 1)
                figure.add_trace(trace, row, column)
            figure.add_trace(_chance(part, legend=row == column == 1), row, column)
            grows = math.isfinite(float(part.difficulty[0]))
            figure.update_xaxes(type="linear" if grows else "category", row=row, col=column)
            if grows:
                figure.update_xaxes(title="difficulty D (steps)", dtick=1, row=row, col=column)
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="accuracy", col=1)
    return figure.update_layout(**LAYOUT, height=130 + 300 * len(scorings))


def _panel_cells(found: xr.Dataset) -> dict[str, list[str]]:
    """Labels of cells by panel."""
    panels: dict[str, list[str]] = {}
    for label, formulation in zip(found.cell.values.tolist(), found.formulation.values.tolist(), strict=True):
        panels.setdefault(formulation if FORMULATIONS[formulation].grows else "one difficulty", []).append(label)
    return panels


def _x_values(part: xr.Dataset) -> list[float] | list[str]:
    finite = math.isfinite(float(part.difficulty[0]))
    return part.difficulty.values.tolist() if finite else part.formulation.values.tolist()


def _accuracy_trace(part: xr.Dataset, model: str, colour: str, *, legend: bool) -> go.Scatter:
    """Accuracies of a model in one panel, with the ends of their intervals."""
    return go.Scatter(
        x=_x_values(part),
        y=part.accuracy.values,
        error_y={
            "array": (part.high - part.accuracy).values,
            "arrayminus": (part.accuracy - part.low).values,
            "symmetric": False,
        },
        mode="lines+markers" if math.isfinite(float(part.difficulty[0])) else "markers",
        name=model,
        legendgroup=model,
        showlegend=legend,
        marker={"color": colour, "size": 7},
        line={"color": colour, "width": 1.5},
        hovertemplate="%{x}: %{y:.3f}<extra>" + model + "</extra>",
    )


def _chance(part: xr.Dataset, *, legend: bool) -> go.Scatter:
    grows = math.isfinite(float(part.difficulty[0]))
    return go.Scatter(
        x=_x_values(part),
        y=part.chance.isel(model=0).values if "model" in part.chance.dims else part.chance.values,
        mode="lines+markers" if grows else "markers",
        name="chance",
        legendgroup="chance",
        showlegend=legend,
        marker={"color": "#555", "symbol": "line-ew-open", "size": 14},
        line={"color": "#555", "dash": "dash", "width": 1},
        hovertemplate="chance %{y:.3f}<extra></extra>",
    )


def accuracy_table(found: xr.Dataset) -> Table:
    """A row for every model, kind of questions and scoring, from `accuracies`, over (model, scoring, cell)."""
    rows = []
    for model in found.model.values.tolist():
        for cell in found.cell.values.tolist():
            for scoring in found.scoring.values.tolist():
                one = found.sel(model=model, cell=cell, scoring=scoring)
                accuracy = float(one.accuracy)
                known = math.isfinite(accuracy)
                bounds = {"low": float(one.low), "high": float(one.high), "interval": "95 %"}
                shown = Number(f"{accuracy:.3f}" if known else "–", mean=accuracy, **(bounds if known else {}))
                ends = f"[{float(one.low):.3f}, {float(one.high):.3f}]"
                numbers = [single_number(float(one[name]), ".3f") for name in ("chance", "answered", "mass")]
                rows.append([model, cell, scoring, bar(accuracy if known else 0.0), shown, ends, *numbers])
    header = ("model", "questions", "answer", "", "accuracy", "95% interval", "chance", "answered", "probability")
    n = found.attrs["n_questions"]
    return Table(name="accuracy", title=f"accuracy on {n} questions each", header=header, rows=rows, n_text=4)


def published_table() -> Table:
    """The source's figures for large language models."""
    header = ("formulation", "difficulty", "published, of large models")
    title = "published: sentences only; the accuracies stand in a figure"
    return Table(name="published", title=title, header=header, rows=PUBLISHED, n_text=3)
