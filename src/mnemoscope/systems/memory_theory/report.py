"""The page of `reproduce`, made from what the claims measured: capacity against parameters, exponents, single sizes."""

import numpy as np
import xarray as xr

from mnemoscope.core import mean_interval
from mnemoscope.report import (
    DRAW_REPORTS,
    DrawReport,
    Page,
    Results,
    Table,
    findings,
    interval,
    mean_with_range,
    power_law_figure,
)
from mnemoscope.systems.memory_theory.capacity import LAW, PLAIN, amounts, growth

MEMORIES = {"M4": "trained matrix", "M4-mlp": "trained MLP", "M4-outer": "sum of outer products"}
"""The memory measured for each claim."""
_COUNT = "n_"
PUBLISHED = 1
"""The slope of N log N against the number of parameters."""
_CAPTION = (
    "A dot is a draw. The line is the mean of the lines fitted to each draw, the band its 95 % interval over draws. "
    "Dashed: N ln N equal to the number of parameters; published is a line of that slope, at any height."
)


def capacities_in(results: Results) -> dict[str, xr.Dataset]:
    """`capacity` over d and draw and `parameters` over d, by memory, of the claims that were measured."""
    found = {}
    for claim, memory in MEMORIES.items():
        if claim in results:
            names = [str(name) for name in results[claim].data_vars if str(name).startswith(_COUNT)]
            d = xr.DataArray([int(name.removeprefix(_COUNT)) for name in names], dims="d", name="d")
            capacity = xr.concat([results[claim][name] for name in names], d).rename("capacity")
            found[memory] = xr.Dataset({"capacity": capacity, "parameters": d**2}).sortby("d")
    return found


def tables(results: Results) -> list[Table]:
    """Exponents with their intervals, and capacity at every size."""
    found = capacities_in(results)
    return [_exponent_table(found), *(_size_table(memory, each) for memory, each in found.items())]


def _exponent_table(found: dict[str, xr.Dataset]) -> Table:
    rows = []
    for memory, each in found.items():
        slopes = growth(each.capacity, each.parameters).slope
        largest = each.isel(d=-1)
        per_parameter = amounts(largest.capacity) / largest.parameters
        rows.append(
            [
                memory,
                f"{int(each.d[0])} to {int(each.d[-1])}",
                f"{PUBLISHED}",
                *(_slope_with_interval(slopes.sel(law=law)) for law in (LAW, PLAIN)),
                *(mean_with_range(per_parameter.sel(law=law), ".3f") for law in (LAW, PLAIN)),
            ]
        )
    header = (
        "memory", "d", "slope of N log N, published", "measured", "slope of N",
        "N ln N per parameter, largest d", "N per parameter, largest d",
    )  # fmt: skip
    return Table(name="exponents", title="exponents, mean over draws [95 % interval]", header=header, rows=rows)


def _slope_with_interval(slope: xr.DataArray) -> str:
    mean, low, high = (float(end) for end in mean_interval(slope))
    return interval(mean, low, high, n=int(slope.count()), each=slope)


def _size_table(memory: str, found: xr.Dataset) -> Table:
    rows = []
    for d in found.d.values:
        capacity, parameters = found.capacity.sel(d=d), int(found.parameters.sel(d=d))
        per_parameter = amounts(capacity) / parameters
        shares = [mean_with_range(per_parameter.sel(law=law), ".3f") for law in (LAW, PLAIN)]
        rows.append([str(d), str(parameters), mean_with_range(capacity, ".0f"), *shares])
    header = ("d", "parameters", "associations", "N ln N per parameter", "N per parameter")
    name = memory.replace(" ", "_")
    return Table(name=name, title=f"{memory}, mean and range over draws", header=header, rows=rows)


def fitted_band(found: xr.Dataset) -> xr.DataArray:
    """N ln N on the lines fitted to each draw, over d: the mean on the logarithmic scale, and its 95 % interval."""
    lines = growth(found.capacity, found.parameters).sel(law=LAW, drop=True)
    logs = mean_interval(lines.intercept + lines.slope * np.log(found.parameters))
    return logs.copy(data=np.exp(logs.values))


def _shown_part(found: xr.Dataset) -> xr.Dataset:
    """The part of a memory's results that the figure shows."""
    amount = amounts(found.capacity).sel(law=LAW, drop=True)
    return xr.Dataset({"amount": amount, "size": found.parameters, "fit": fitted_band(found)})


def page(page: Page, results: Results) -> None:
    """The findings, the figure and the tables."""
    capacities = capacities_in(results)
    for memory, each in capacities.items():
        slopes = growth(each.capacity, each.parameters).slope.sel(law=LAW, drop=True)
        said = findings.describe_growth(memory, "N ln N", "the number of parameters", slopes, expected=PUBLISHED)
        page.text(said, "finding")
    found = {memory: _shown_part(each) for memory, each in capacities.items()}
    page.section("Capacity against parameters")
    page.figure(power_law_figure(found, amount="N ln N", size="parameters (d², αd² for the MLP)"), _CAPTION)
    page.section("Exponents and sizes")
    for table in tables(results):
        page.show(table)


DRAW_REPORTS.add("memory-theory", DrawReport(title="Capacity of associative memories", tables=tables, page=page))
