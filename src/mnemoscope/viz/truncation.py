"""A model's answers with weights cut at a rank: tables and curves over the rank."""

from itertools import cycle, product
from typing import Literal

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core.statistics import summary_over
from mnemoscope.viz.figures import LAYOUT, PALETTE, seed_lines
from mnemoscope.viz.tables import Table, spread

Score = Literal["probability", "accuracy"]
KEPT = {"top": "largest kept", "rest": "largest removed"}
ROW_HEIGHT = 280


def truncation_table(found: xr.Dataset, score: Score) -> Table:
    """The intact model, then every weight, part and rank: one score of each target, mean [range] over seeds."""
    shares = ["context share"] if "context_share" in found and score == "probability" else []
    rows = [["nothing", "", "", *_cells(found, "clean_", score)]]
    for weight, part, rank in product(found.weight.values, found.part.values, found["rank"].values):
        at = found.sel(weight=weight, part=part, rank=rank)
        rows.append([str(weight), KEPT[str(part)], str(int(rank)), *_cells(at, "", score)])
    return Table(
        name=score,
        title=f"{score} of every target with a weight cut at a rank",
        header=["weight", "components", "rank", *(str(target) for target in found.target.values), *shares],
        rows=rows,
        n_text=2,
    )


def _cells(at: xr.Dataset, when: str, score: Score) -> list[str]:
    scores = [at[f"{when}{score}"].sel(target=target) for target in at.target.values]
    shares = [at[f"{when}context_share"]] if "context_share" in at and score == "probability" else []
    return [spread(cell, ".2f") for cell in (*scores, *shares)]


def truncation_figure(found: xr.Dataset) -> go.Figure:
    """Mean probability of every target over the rank, a line each, with the range over seeds; a row per weight.

    Ranks have equal distances on the axis. The dotted line is the intact model.
    """
    weights, parts = ([str(name) for name in found[dim].values] for dim in ("weight", "part"))
    titles = [f"{weight}, {KEPT[part]}" for weight in weights for part in parts]
    figure = make_subplots(
        len(weights),
        len(parts),
        subplot_titles=titles,
        shared_yaxes=True,
        vertical_spacing=min(0.3, 90 / (ROW_HEIGHT * len(weights))),
    )
    for row, weight in enumerate(weights, 1):
        for column, part in enumerate(parts, 1):
            at = found.sel(weight=weight, part=part)
            for target, colour in zip(found.target.values, cycle(PALETTE)):
                values = at.probability.sel(target=target)
                intact = float(at.clean_probability.sel(target=target).mean("seed"))
                for trace in _curve(values, str(target), colour, intact, legend=(row, column) == (1, 1)):
                    figure.add_trace(trace, row, column)
    figure.update_xaxes(title="rank of the cut", type="category")
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="probability", col=1)
    layout = {**LAYOUT, "legend": {"orientation": "h", "y": -90 / (ROW_HEIGHT * len(weights))}}
    return figure.update_layout(**layout, height=110 + ROW_HEIGHT * len(weights))


def _curve(values: xr.DataArray, name: str, colour: str, intact: float, *, legend: bool) -> list[go.Scatter]:
    """The range over seeds as a band, the intact model and the mean."""
    ranks = [str(int(rank)) for rank in values["rank"].values]
    summary = summary_over(values)
    mean, low, high = (summary.sel(summary=which).values.tolist() for which in ("mean", "min", "max"))
    quiet = {"legendgroup": name, "showlegend": False, "hoverinfo": "skip"}
    band = go.Scatter(
        x=[*ranks, *ranks[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=colour,
        opacity=0.18,
        line={"width": 0},
        mode="lines",
        **quiet,
    )
    level = go.Scatter(
        x=[ranks[0], ranks[-1]],
        y=[intact, intact],
        mode="lines",
        line={"color": colour, "dash": "dot", "width": 1},
        **quiet,
    )
    line = go.Scatter(
        x=ranks,
        y=mean,
        mode="lines+markers",
        name=name.replace("_", " "),
        line={"color": colour, "width": 1.6},
        marker={"size": 5},
        legendgroup=name,
        showlegend=legend,
        customdata=list(zip(low, high, strict=True)),
        hovertemplate=f"{name}, %{{x}}: %{{y:.3f}} [%{{customdata[0]:.3f}}, %{{customdata[1]:.3f}}]<extra></extra>",
    )
    return [*([band] if values.sizes["seed"] > 1 else []), level, line]


def spectrum_figure(found: xr.Dataset) -> go.Figure:
    """Singular values of every matrix, largest first, one line per seed."""
    figure, values = go.Figure(), found.singular_value.assign_coords(index=found["index"].values + 1)
    for matrix, colour in zip(found.matrix.values, cycle(PALETTE)):
        lines = seed_lines(values.sel(matrix=matrix, drop=True), str(matrix), colour, "%{y:.3g}", mode="lines")
        figure.add_traces(lines)
    figure.update_xaxes(title="component")
    figure.update_yaxes(title="singular value", rangemode="tozero")
    return figure.update_layout(**LAYOUT, height=320)
