"""Circuits that searches found, over seeds: tables, circuits by role, and faithfulness by number of edges."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core.edge import Edge
from mnemoscope.viz.edges import role_circuit
from mnemoscope.viz.figures import LAYOUT, PALETTE
from mnemoscope.viz.tables import Table, spread

SMALLEST, GREEDY, BY_EFFECT, BY_GRADIENT = "smallest minimal", "greedy", "top n by effect", "top n by EAP-IG"
"""What searches are called."""
MOST = 60
"""Edges of a table."""
_CURVES = {
    SMALLEST: ("best of all circuits", "#8a93a3", "dot"),
    BY_EFFECT: (BY_EFFECT, PALETTE[0], "solid"),
    BY_GRADIENT: (BY_GRADIENT, PALETTE[1], "dash"),
}


def circuit_table(found: Mapping[str, xr.Dataset], how: str) -> Table:
    """Every search: size and faithfulness of its circuit and, where all circuits were run, how far it is from them.

    `found` gives for every skill the circuits along `seed`; seeds that do not tell clean from corrupted prompts have
    NaN, and the others are counted. Cells are mean [range] over seeds. `how` stands in the title.
    """
    columns = {"edges": ("n_edges", ".1f"), "faithfulness": ("faithfulness", ".3f")}
    if all(SMALLEST in each.search for each in found.values()):
        columns |= {"size ratio": ("size_ratio", ".2f"), "overlap": ("jaccard", ".2f"), "gap": ("gap", ".3f")}
        columns |= {"minimal circuits": ("n_minimal", ".1f")}
    rows = []
    for skill, each in found.items():
        for search in each.search.values:
            at = each.sel(search=search)
            n = str(int(at.n_edges.notnull().sum()))
            rows.append([skill, str(search), n, *(spread(at[name], form) for name, form in columns.values())])
    title, header = f"circuits, judged on other prompts; {how}", ["skill", "search", "seeds", *columns]
    return Table(name="circuits", title=title, header=header, rows=rows, n_text=2)


def member_table(found: Mapping[str, xr.Dataset], how: str) -> Table:
    """By search: how many seeds have the edge in their circuit, of those that have the edge and a circuit.

    Edges come in the order of the model; those of no circuit are left out, of many those of the fewest circuits.
    Arguments as for `circuit_table`.
    """
    rows = []
    for skill, each in found.items():
        often = each.circuit.sum("seed").max("search").values
        kept = sorted(i for i in np.argsort(-often, kind="stable")[:MOST] if often[i])
        for i in kept:
            inside = each.circuit.isel(edge=i).transpose("search", "seed")
            rows.append([skill, str(each.edge.values[i]), *(f"{int(of.sum())}/{int(of.count())}" for of in inside)])
    title = f"seeds whose circuit has the edge (edges of no circuit are left out); {how}"
    header = ["skill", "edge", *(str(search) for search in next(iter(found.values())).search.values)]
    return Table(name="edges", title=title, header=header, rows=rows, n_text=2)


def control_table(found: Mapping[str, xr.Dataset], how: str) -> Table:
    """Circuits among random ones of their size, mean [range] over seeds; and in how many seeds none of these is better.

    Searches that find in every seed what one before them finds are left out. Arguments as for `circuit_table`.
    """
    rows = []
    for skill, each in found.items():
        circuits = each.circuit.transpose("search", "seed", "edge").values
        for i, search in enumerate(each.search.values):
            if any(np.array_equal(circuits[i], earlier, equal_nan=True) for earlier in circuits[:i]):
                continue
            for measure in each.measure.values:
                at = each.sel(search=search, measure=measure)
                cells = [spread(values, ".3f") for values in (at.value, at.random.mean("draw"), at.p)]
                best = f"{int((at['rank'] == 1).sum())}/{int(at['rank'].count())}"
                rows.append([skill, str(search), str(measure), *cells, best])
    n_random = next(iter(found.values())).sizes["draw"]
    title = f"circuits among {n_random} random ones of their size, on other prompts; {how}"
    header = ("skill", "search", "measure", "circuit", "random circuits", "p", "none better: seeds")
    return Table(name="random", title=title, header=header, rows=rows, n_text=3)


def circuit_by_role(chosen: Sequence[Edge], found: xr.Dataset, component: xr.DataArray) -> tuple[str, go.Figure] | None:
    """The circuit of the first search, and in words over which seeds; none where no seed has one.

    An edge is as wide as the share of seeds whose circuit has it; of a single seed as what is lost without it. The
    model's edges, `chosen`, name heads by number, `found` by role; `component` over (seed, role) translates.
    """
    inside = found.circuit.isel(search=0, drop=True)
    several = inside.sizes["seed"] > 1
    drawn = role_circuit(chosen, (inside if several else found.effect).where(inside.mean("seed") > 0), component)
    if drawn is None:
        return None
    title = "share of seeds" if several else "faithfulness lost without it"
    return drawn[0], drawn[1].update_coloraxes(colorbar_title_text=title)


def curve_figure(found: Mapping[str, xr.Dataset]) -> go.Figure:
    """Faithfulness by number of edges, one panel per skill: of the best circuits and of rankings, mean over seeds."""
    figure = make_subplots(1, len(found), subplot_titles=list(found), shared_yaxes=True)
    for column, each in enumerate(found.values(), 1):
        for search, (name, colour, dash) in _CURVES.items():
            if search not in each.search:
                continue
            line = go.Scatter(
                x=list(range(each.sizes["taken"])),
                y=each.curve.sel(search=search).mean("seed").values,
                mode="lines+markers",
                marker={"size": 5, "color": colour},
                line={"color": colour, "width": 1.5, "dash": dash},
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                hovertemplate=f"{name}, %{{x}} edges: %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(line, 1, column)
        style = {"line": {"dash": "dash", "color": "#c3c9d3", "width": 1}, "row": 1, "col": column}
        figure.add_hline(y=each.attrs["target"], **style)
    figure.update_xaxes(title="edges")
    figure.update_yaxes(title="faithfulness", row=1, col=1)
    return figure.update_layout(**LAYOUT, height=360)
