"""Activation patching, as rows of text and as heatmaps."""

from collections.abc import Iterator, Mapping

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz.figures import heatmaps
from mnemoscope.viz.tables import spread

WORDS = {"noising": "necessity", "denoising": "sufficiency"}
"""What an effect is called, by direction."""


def patching_header(effects: Mapping[str, xr.Dataset]) -> list[str]:
    """Column names of `patching_rows`: one for each skill and direction."""
    return ["patched", *(f"{skill}, {WORDS[direction]}" for skill, direction, _ in _columns(effects))]


def patching_rows(effects: Mapping[str, xr.Dataset], metric: str) -> list[list[str]]:
    """The difference that is carried, then every cell of the sweep, for each skill and direction.

    All are mean [range] over seeds. Below 0 the difference is one of a model that answers the other way round.

    Args:
        effects: Skill to the effects of a patch, along `seed`.
        metric: Which metric.
    """
    columns = [ratio.sel(metric=metric).stack(cell=_axes(ratio)) for _, _, ratio in _columns(effects)]
    names = [_name(columns[0], i) for i in range(columns[0].cell.size)]
    rows = [[name, *(spread(column.isel(cell=i), ".2f") for column in columns)] for i, name in enumerate(names)]
    label, whole = difference(effects, metric)
    return [[label, *(spread(value, ".2f") for value in whole)], *rows]


def difference(effects: Mapping[str, xr.Dataset], metric: str) -> tuple[str, list[xr.DataArray]]:
    """Clean less corrupted, the mean over prompts: its label, and a value for each skill and direction."""
    unit = next(iter(effects.values())).unit.sel(metric=metric).item()
    whole = [each.difference.sel(metric=metric).mean("prompt") for each in effects.values() for _ in each.direction]
    return f"clean less corrupted, {unit}", whole


def patching_figure(effects: Mapping[str, xr.Dataset], metric: str) -> go.Figure:
    """A heatmap of the mean over seeds for each skill and direction; the last axis of the sweep runs along x."""
    panels = {
        f"{skill}: {WORDS[direction]}": ratio.sel(metric=metric, drop=True).mean("seed").transpose(*_axes(ratio))
        for skill, direction, ratio in _columns(effects)
    }
    return heatmaps(panels, low=-1, high=1)


def _columns(effects: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, str, xr.DataArray]]:
    for skill, found in effects.items():
        for direction in found.direction.values:
            yield skill, str(direction), found.ratio.sel(direction=direction, drop=True)


def _axes(ratio: xr.DataArray) -> list[str]:
    """The axes of the sweep, positions last."""
    axes = [str(dim) for dim in ratio.dims if dim not in ("seed", "metric", "direction")]
    return sorted(axes, key=lambda axis: axis in ("pos", "key"))


def _name(column: xr.DataArray, i: int) -> str:
    """What a cell is called: `elimination head pos 8`."""
    labels = zip(column.indexes["cell"].names, column.cell.values[i], strict=True)
    return " ".join(str(value) if axis == "role" else f"{axis} {value}" for axis, value in labels)
