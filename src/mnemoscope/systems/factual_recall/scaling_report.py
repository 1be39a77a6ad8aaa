"""The number of facts learned by width, measured for F1: tables, and the figure of the paper's section 5."""

import numpy as np
import xarray as xr

from mnemoscope.core import mean_interval
from mnemoscope.report import Page, Results, Table, findings, interval, mean_with_range, power_law_figure
from mnemoscope.systems.factual_recall.analyses import exponents, n_parameters, scaling_sweep

MODELS = {"F1": "attention and MLP", "F1-attention": "attention alone"}
"""The models measured for each claim."""
THEORY = 1
"""The exponent of facts against parameters."""
_FACTS = "facts_"
_CAPTION = (
    "A dot is a draw: facts, embeddings, initial weights and data of its own. The line is the mean of the lines fitted "
    "to each draw, the band its 95 % interval over draws. Dashed: one fact for every parameter."
)


def facts_in(results: Results) -> dict[str, xr.Dataset]:
    """`facts` over width and draw and `parameters` over width, by kind of model, of the claims that were measured."""
    found = {}
    for claim, model in MODELS.items():
        if claim in results:
            names = [str(name) for name in results[claim].data_vars if str(name).startswith(_FACTS)]
            widths = [int(name.removeprefix(_FACTS)) for name in names]
            facts = xr.concat(
                [results[claim][name] for name in names], xr.DataArray(widths, dims="width", name="width")
            )
            sweep = scaling_sweep([0], mlp=model != MODELS["F1-attention"], widths=widths)
            found[model] = xr.Dataset({"facts": facts, "parameters": n_parameters(sweep)}).sortby("width")
    return found


def fitted_lines(found: xr.Dataset) -> xr.DataArray:
    """Facts on the lines fitted to each draw, over summary (mean, low, high) and width.

    The mean is on the logarithmic scale, with its 95 % interval; a draw without an exponent stays out.
    """
    slopes, size = exponents(found), np.log(found.parameters)
    middle = np.log(found.facts.where(found.facts > 0)).mean("width", skipna=False)
    logs = mean_interval(middle + slopes * (size - size.mean()))
    return logs.copy(data=np.exp(logs.values))


def tables(results: Results) -> list[Table]:
    """Exponents with their intervals, and facts at every width."""
    found = facts_in(results)
    return [_exponent_table(found), *(_width_table(model, each) for model, each in found.items())] if found else []


def _exponent_table(found: dict[str, xr.Dataset]) -> Table:
    rows = []
    for model, each in found.items():
        slopes = exponents(each)
        mean, low, high = (float(end) for end in mean_interval(slopes))
        learned = f"{int(slopes.count())} of {slopes.size}"
        widths = f"{int(each.width[0])} to {int(each.width[-1])}"
        per_fact = (each.parameters / each.facts.where(each.facts > 0)).isel(width=-1)
        rows.append(
            [
                model,
                widths,
                learned,
                f"{THEORY}",
                interval(mean, low, high, n=int(slopes.count()), each=slopes),
                mean_with_range(per_fact, ".1f"),
            ]
        )
    header = (
        "model", "d", "draws that learn at every d", "exponent, theory", "measured", "parameters per fact, largest d",
    )  # fmt: skip
    return Table(name="exponents", title="exponents, mean over draws [95 % interval]", header=header, rows=rows)


def _width_table(model: str, found: xr.Dataset) -> Table:
    rows = []
    for width in found.width.values:
        facts, parameters = found.facts.sel(width=width), int(found.parameters.sel(width=width))
        rows.append([str(width), str(parameters), mean_with_range(facts, ".0f")])
    name = model.replace(" ", "_")
    return Table(name=name, title=f"{model}, mean and range over draws", header=("d", "parameters", "facts"), rows=rows)


def page(page: Page, results: Results) -> None:
    """The findings, the figure and the tables."""
    found = facts_in(results)
    drawn = {
        model: xr.Dataset(
            {"amount": each.facts.where(each.facts > 0), "size": each.parameters, "fit": fitted_lines(each)}
        )
        for model, each in found.items()
    }
    if not drawn:
        page.text("How many facts are learned by width was not measured: claims F1 and F1-attention were not tried.")
        return
    for model, each in found.items():
        said = findings.describe_growth(
            model, "the number of facts", "that of parameters", exponents(each), expected=THEORY
        )
        page.text(said, "finding")
    page.section("Facts against parameters")
    page.figure(power_law_figure(drawn, amount="facts S R", size="parameters 4 H d_h d + 2 m d"), _CAPTION)
    page.section("Exponents and widths")
    for table in tables(results):
        page.show(table)
