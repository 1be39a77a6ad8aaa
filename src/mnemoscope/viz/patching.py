"""Patching over seeds, of activations and of paths: tables, heatmaps and scatter plots.

Effects of paths stand beside what gradients estimate of them.
"""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core import positions
from mnemoscope.viz.figures import LAYOUT, PALETTE, heatmaps
from mnemoscope.viz.tables import Table, spread

WORDS = {"noising": "necessity", "denoising": "sufficiency"}
"""What an effect is called, by direction."""


def patching_table(effects: Mapping[str, xr.Dataset], metric: str, title: str) -> Table:
    """The difference that is carried, then every cell of the sweep, for each skill and direction.

    `effects` gives for every skill the effects of a patch, along `seed`; all cells are mean [range] over seeds. A
    difference below 0 means that the model answers the other way round.
    """
    columns = {
        f"{skill}, {WORDS[direction]}": ratio.sel(metric=metric).stack(cell=_axes(ratio))
        for skill, direction, ratio in _columns(effects)
    }
    first = next(iter(columns.values()))
    label, whole = _difference(effects, metric)
    names = _names(first)
    cells = [(name, [column.isel(cell=i) for column in columns.values()]) for i, name in enumerate(names)]
    rows = [[name, *(spread(cell, ".2f") for cell in row)] for name, row in [(label, whole), *cells]]
    return Table(name=metric, title=title, header=["patched", *columns], rows=rows)


def _difference(effects: Mapping[str, xr.Dataset], metric: str) -> tuple[str, list[xr.DataArray]]:
    """Clean less corrupted, the mean over prompts: its label, and a value for each skill and direction."""
    unit = next(iter(effects.values())).unit.sel(metric=metric).item()
    whole = [each.difference.sel(metric=metric).mean("prompt") for each in effects.values() for _ in each.direction]
    return f"clean less corrupted, {unit}", whole


def patching_figure(effects: Mapping[str, xr.Dataset], metric: str) -> go.Figure:
    """A heatmap for each skill and direction, means over seeds where there are several; the last axis of the sweep runs
    along x.

    Args:
        effects: By name, such as a skill, from `analyses.effects`.
        metric: Which metric.
    """
    panels = {
        f"{skill}: {WORDS[direction]}": _mean(ratio.sel(metric=metric, drop=True)).transpose(*_axes(ratio))
        for skill, direction, ratio in _columns(effects)
    }
    return heatmaps(panels, low=-1, high=1)


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean("seed") if "seed" in values.dims else values


def _columns(effects: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, str, xr.DataArray]]:
    for skill, found in effects.items():
        for direction in found.direction.values:
            yield skill, str(direction), found.ratio.sel(direction=direction, drop=True)


def _axes(ratio: xr.DataArray) -> list[str]:
    """The axes of the sweep, positions last."""
    axes = [str(dim) for dim in ratio.dims if dim not in ("seed", "metric", "direction")]
    return sorted(axes, key=lambda axis: axis in ("pos", "key"))


def _names(column: xr.DataArray) -> list[str]:
    """The names of cells: `memory head pos x5`."""
    axes = [str(axis) for axis in column.indexes["cell"].names]
    labels = zip(*(positions.shown(column, axis) for axis in axes), strict=True)
    words = ["" if axis == "role" else f"{positions.word(axis)} " for axis in axes]
    return [" ".join(word + label for word, label in zip(words, cell, strict=True)) for cell in labels]


MOST = 40
"""Edges of a table."""
TOP = (3, 5)
"""Largest effects whose overlap is shown."""


def edge_table(effects: Mapping[str, xr.Dataset], metric: str, title: str) -> Table:
    """The difference that is carried, then necessity and sufficiency of the largest edges in the order of the model.

    `effects` gives for every skill the effects of patching edges by role, along `seed`; all cells are mean [range] over
    seeds. A difference below 0 means that the model answers the other way round. Where not all seeds have all edges,
    the last column says how many do.
    """
    found = {skill: each.ratio.sel(metric=metric) for skill, each in effects.items()}
    first = next(iter(effects.values()))
    label, whole = _difference(effects, metric)
    there = {label: (whole, first.sizes["seed"])}
    for edge in _largest(found):
        cells = [each.sel(edge=edge, direction=d) for each in found.values() for d in each.direction.values]
        there[edge] = (cells, int((first.component.sel(edge=edge) != "").sum()))
    header = ["edge", *(f"{skill}, {WORDS[direction]}" for skill, direction, _ in _columns(effects))]
    rows = [[name, *(spread(cell, ".2f") for cell in cells)] for name, (cells, _) in there.items()]
    if some_lack(effects):
        header.append("seeds that have it")
        rows = [[*row, str(n)] for row, (_, n) in zip(rows, there.values(), strict=True)]
    most = f"; the {MOST} largest of {first.sizes['edge']}" if first.sizes["edge"] > MOST else ""
    return Table(name=metric, title=title + most, header=header, rows=rows)


def estimate_table(effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str) -> Table:
    """The necessity of every edge of `edge_table` beside its estimates along `estimate`, mean [range] over seeds."""
    exact = {skill: each.ratio.sel(metric=metric) for skill, each in effects.items()}
    columns = {}
    for skill, each in estimates.items():
        columns[f"{skill}, exact"] = exact[skill].sel(direction="noising")
        for guess in each.ratio.sel(metric=metric, direction="noising").transpose("estimate", ...):
            columns[f"{skill}, {guess.estimate.item()}"] = guess
    rows = [[edge, *(spread(column.sel(edge=edge), ".2f") for column in columns.values())] for edge in _largest(exact)]
    title = f"{metric}: necessity beside its estimates"
    return Table(name=f"{metric}-estimates", title=title, header=["edge", *columns], rows=rows)


def error_table(errors: Mapping[str, xr.Dataset], metric: str) -> Table:
    """The distance of each estimate from the exact sweep of its model, along `estimate`; mean [range] over seeds."""
    rows = []
    for skill, found in errors.items():
        for estimate, direction in product(found.estimate.values, found.direction.values):
            at = found.sel(metric=metric, estimate=estimate, direction=direction)
            cells = [at.pearson, at.sign_agreement, *(at.precision.sel(top=n) for n in TOP)]
            cells += [at.mean_absolute_error, at.relative_error]
            rows.append([skill, str(estimate), WORDS[str(direction)], *(spread(cell, ".2f") for cell in cells)])
    overlaps = [f"overlap of the top {n}" for n in TOP]
    header = ["skill", "estimate", "of", "Pearson", "sign agreement", *overlaps, "mean absolute error", "relative"]
    title = f"{metric}: error of the estimates on each model"
    return Table(name=f"{metric}-errors", title=title, header=header, rows=rows, n_text=3)


def estimate_figure(effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str) -> go.Figure:
    """Estimated against exact necessity of every edge in every seed, one panel per skill."""
    figure = make_subplots(1, len(effects), subplot_titles=list(effects), shared_yaxes=True)
    at = {"metric": metric, "direction": "noising"}
    for column, (skill, found) in enumerate(effects.items(), 1):
        exact = found.ratio.sel(at).transpose("seed", "edge")
        ends = [min(0.0, float(exact.min())), max(1.0, float(exact.max()))] if exact.notnull().any() else [0.0, 1.0]
        line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": "#b8bfca", "width": 1}, hoverinfo="skip")
        figure.add_trace(line.update(showlegend=False), 1, column)
        labels = [f"{edge}, seed {seed}" for seed in exact.seed.values for edge in exact.edge.values]
        for estimate, colour in zip(estimates[skill].estimate.values, PALETTE[:2], strict=True):
            guess = estimates[skill].ratio.sel(at).sel(estimate=estimate).transpose("seed", "edge")
            dots = go.Scatter(
                x=exact.values.ravel(),
                y=guess.values.ravel(),
                text=labels,
                mode="markers",
                marker={"color": colour, "size": 6, "opacity": 0.6},
                name=str(estimate),
                legendgroup=str(estimate),
                showlegend=column == 1,
                hovertemplate=f"%{{text}}: %{{x:.3f}}, {estimate} %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(dots, 1, column)
    figure.update_xaxes(title="necessity, exact")
    figure.update_yaxes(title="estimated", row=1, col=1)
    return figure.update_layout(**LAYOUT, height=400)


def _largest(found: Mapping[str, xr.DataArray]) -> list[str]:
    """The edges whose effect is largest for some skill, in their order."""
    sizes = [abs(each.mean("seed")).max("direction") for each in found.values()]
    size = np.nanmax(np.stack([np.nan_to_num(each.values, nan=-1) for each in sizes]), 0)
    largest = sorted(np.argsort(-size, kind="stable")[:MOST])
    edges = next(iter(found.values())).edge.values
    return [str(edges[i]) for i in largest]


def some_lack(effects: Mapping[str, xr.Dataset]) -> bool:
    """True if heads of one role lie in different layers, so that seeds differ in their edges."""
    return bool((next(iter(effects.values())).component == "").any())
