"""Sweeps over configurations as a table and a page: one row, or one cell of a heatmap, per configuration."""

import xarray as xr

from mnemoscope.report.figures import heatmaps
from mnemoscope.report.page import Page
from mnemoscope.report.tables import Table, mean_with_range, pluralise

SEARCHED = "largest"


def column_names(found: xr.Dataset) -> list[str]:
    """The variables worth a column: searched value, accuracies, the task's `numbers`, test loss, last step; or all."""
    if SEARCHED in found:
        return [SEARCHED, "parameters"]
    skills = [str(name) for name in found.data_vars if str(name).startswith("test_") and "loss" not in str(name)]
    others = (*found.attrs.get("numbers", ()), "test_loss", "last_step", "parameters")
    return [*skills, *(name for name in others if name in found)] or [str(name) for name in found.data_vars]


def _readable_name(name: str) -> str:
    """The name of a variable, or of a field of the configuration."""
    return name.rpartition(".")[2].removeprefix("test_").replace("_", " ")


def sweep_table(found: xr.Dataset) -> Table:
    """Mean and range over seeds, one row per configuration, from `swept`, `over_sweep` or `search_sweep`."""
    names = column_names(found)
    axes = [str(dim) for dim in found.sizes if dim != "seed"]
    cells = found.stack(cell=axes)
    rows = []
    for number, labels in enumerate(cells.cell.values.tolist()):
        here = cells.isel(cell=number)
        rows.append([*map(str, labels), *(mean_with_range(here[name], _digits(here[name])) for name in names)])
    header = [*axes, *map(_readable_name, names)]
    title = (
        f"{found.attrs['preset']}, {found.attrs['recipe']}: mean [range] over {pluralise(found.sizes['seed'], 'seed')}"
    )
    return Table(name="sweep", title=title, header=header, rows=rows, n_text=len(axes))


def _digits(values: xr.DataArray) -> str:
    whole = bool((values == values.round()).all()) and float(values.max()) > 1
    return ".0f" if whole or float(abs(values).max()) >= 1000 else ".3f"


def sweep_page(found: xr.Dataset) -> Page:
    """A heatmap of every column of the table, means over seeds; the last axis runs along x."""
    names = column_names(found)
    page = Page("Sweep", f"Preset {found.attrs['preset']}, recipe {found.attrs['recipe']}.")
    for name in names:
        page.section(_readable_name(name))
        values = found[name].mean("seed").astype(float)
        values = values.rename({str(dim): _readable_name(str(dim)) for dim in values.dims})
        figure = heatmaps({_readable_name(name): values}, digits=_digits(found[name]))
        page.figure(figure, f"Mean over {pluralise(found.sizes['seed'], 'seed')}.")
    table = sweep_table(found)
    page.section("All numbers")
    page.show(table)
    return page
