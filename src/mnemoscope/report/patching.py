"""Activation patching over seeds: tables and heatmaps."""

from collections.abc import Iterator, Mapping

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core import positions
from mnemoscope.report.figures import heatmaps
from mnemoscope.report.tables import Table, spread

WORDS = {"noising": "necessity", "denoising": "sufficiency"}
"""Words for an effect, by direction."""


def patching_table(effects: Mapping[str, xr.Dataset], metric: str, title: str) -> Table:
    """Clean less corrupted (the carried difference), then every cell of the sweep, for each skill and direction.

    `effects` gives for every skill the effects of a patch, along `seed`; all cells are mean [range] over seeds. A
    difference below 0 means that the model answers the other way round.
    """
    columns = {
        f"{skill}, {WORDS[direction]}": ratio.sel(metric=metric).stack(cell=_axes(ratio))
        for skill, direction, ratio in by_direction(effects)
    }
    first = next(iter(columns.values()))
    label, whole = difference_row(effects, metric)
    names = _names(first)
    cells = [(name, [column.isel(cell=i) for column in columns.values()]) for i, name in enumerate(names)]
    rows = [[name, *(spread(cell, ".2f") for cell in row)] for name, row in [(label, whole), *cells]]
    return Table(name=metric, title=title, header=["patched", *columns], rows=rows)


def difference_row(effects: Mapping[str, xr.Dataset], metric: str) -> tuple[str, list[xr.DataArray]]:
    """Clean less corrupted, the mean over prompts: its label, and a value for each skill and direction."""
    unit = next(iter(effects.values())).unit.sel(metric=metric).item()
    whole = [each.difference.sel(metric=metric).mean("prompt") for each in effects.values() for _ in each.direction]
    return f"clean less corrupted, {unit}", whole


def patching_figure(effects: Mapping[str, xr.Dataset], metric: str) -> go.Figure:
    """A heatmap for each skill and direction of `analyses.effects`, mean over seeds; the sweep's last axis runs along
    x.
    """
    panels = {
        f"{skill}: {WORDS[direction]}": _mean(ratio.sel(metric=metric, drop=True)).transpose(*_axes(ratio))
        for skill, direction, ratio in by_direction(effects)
    }
    return heatmaps(panels, low=-1, high=1)


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean("seed") if "seed" in values.dims else values


def by_direction(effects: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, str, xr.DataArray]]:
    """Skill, direction and ratio of every column."""
    for skill, found in effects.items():
        for direction in found.direction.values:
            yield skill, str(direction), found.ratio.sel(direction=direction, drop=True)


def _axes(ratio: xr.DataArray) -> list[str]:
    axes = [str(dim) for dim in ratio.dims if dim not in ("seed", "metric", "direction")]
    return sorted(axes, key=lambda axis: axis in ("pos", "key"))


def _names(column: xr.DataArray) -> list[str]:
    """The names of cells: `memory head pos x5`."""
    axes = [str(axis) for axis in column.indexes["cell"].names]
    labels = zip(*(positions.shown(column, axis) for axis in axes), strict=True)
    words = ["" if axis == "role" else f"{positions.word(axis)} " for axis in axes]
    return [" ".join(word + label for word, label in zip(words, cell, strict=True)) for cell in labels]
