"""Circuits that searches found, over seeds: rows of text, circuits by role, and faithfulness by number of edges."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core.edge import Edge
from mnemoscope.viz.edges import role_circuit
from mnemoscope.viz.figures import LAYOUT
from mnemoscope.viz.tables import spread

SMALLEST, GREEDY, BY_EFFECT, BY_GRADIENT = "smallest minimal", "greedy", "top n by effect", "top n by EAP-IG"
"""What searches are called."""
MOST = 60
"""Edges of a table."""
_CURVES = {
    SMALLEST: ("best of all circuits", "#8a93a3", "dot"),
    BY_EFFECT: (BY_EFFECT, "#1f5fbf", "solid"),
    BY_GRADIENT: (BY_GRADIENT, "#c8501e", "dash"),
}


def circuit_header(found: Mapping[str, xr.Dataset]) -> list[str]:
    """Column names of `circuit_rows`."""
    words = ["skill", "search", "seeds", "edges", "faithfulness"]
    return [*words, *(["size ratio", "overlap", "gap", "minimal circuits"] if _truth_known(found) else [])]


def circuit_rows(found: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """Every search: size and faithfulness of its circuit and, where all circuits were run, how far it is from them.

    Args:
        found: Skill to the circuits of every search, along `seed`; NaN in seeds that do not tell clean from corrupted
            prompts. The others are counted.

    Returns:
        Cells are mean [range] over seeds.
    """
    forms = {"n_edges": ".1f", "faithfulness": ".3f"}
    if _truth_known(found):
        forms |= {"size_ratio": ".2f", "jaccard": ".2f", "gap": ".3f", "n_minimal": ".1f"}
    rows = []
    for skill, each in found.items():
        for search in each.search.values:
            at = each.sel(search=search)
            n = str(int(at.n_edges.notnull().sum()))
            rows.append([skill, str(search), n, *(spread(at[name], form) for name, form in forms.items())])
    return rows


def member_header(found: Mapping[str, xr.Dataset]) -> list[str]:
    """Column names of `member_rows`."""
    return ["skill", "edge", *(str(search) for search in next(iter(found.values())).search.values)]


def member_rows(found: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """By search: how many seeds have the edge in their circuit, of those that have the edge and a circuit.

    Edges come in the order of the model; those of no circuit are left out, of many those of the fewest circuits.

    Args:
        found: As for `circuit_rows`.
    """
    rows = []
    for skill, each in found.items():
        often = each.circuit.sum("seed").max("search").values
        kept = sorted(i for i in np.argsort(-often, kind="stable")[:MOST] if often[i])
        rows += [[skill, str(each.edge.values[i]), *_counts(each.circuit.isel(edge=i))] for i in kept]
    return rows


CONTROL_HEADER = ("skill", "search", "measure", "circuit", "random circuits", "p", "none better: seeds")


def control_rows(found: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """Circuits among random ones of their size, mean [range] over seeds; and in how many seeds none of these is better.

    Searches that find in every seed what one before them finds are left out.

    Args:
        found: As for `circuit_rows`.
    """
    rows = []
    for skill, each in found.items():
        circuits = each.circuit.transpose("search", "seed", "edge").values
        for i, search in enumerate(each.search.values):
            if any(np.array_equal(circuits[i], earlier, equal_nan=True) for earlier in circuits[:i]):
                continue
            for measure in each.measure.values:
                at = each.sel(search=search, measure=measure)
                cells = [spread(at.value, ".3f"), spread(at.random.mean("draw"), ".3f"), spread(at.p, ".3f")]
                best = f"{int((at['rank'] == 1).sum())}/{int(at['rank'].notnull().sum())}"
                rows.append([skill, str(search), str(measure), *cells, best])
    return rows


def circuit_by_role(chosen: Sequence[Edge], found: xr.Dataset, component: xr.DataArray) -> tuple[str, go.Figure] | None:
    """The circuit of the first search, and in words over which seeds; none where no seed has one.

    An edge is as wide as the share of seeds whose circuit has it; of a single seed as what is lost without it.

    Args:
        chosen: The edges of the model, heads by number.
        found: The circuits of a skill, along `seed`, edges by role.
        component: Over (seed, role): the head or MLP that has the role.
    """
    inside = found.circuit.isel(search=0, drop=True)
    several = inside.sizes["seed"] > 1
    drawn = role_circuit(chosen, (inside if several else found.effect).where(inside.mean("seed") > 0), component)
    if drawn is None:
        return None
    title = "share of seeds" if several else "faithfulness lost without it"
    return drawn[0], drawn[1].update_coloraxes(colorbar_title_text=title)


def curve_figure(found: Mapping[str, xr.Dataset]) -> go.Figure:
    """Faithfulness by number of edges, one panel per skill: of the best circuits and of rankings, mean over seeds.

    Args:
        found: As for `circuit_rows`.
    """
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


def _counts(inside: xr.DataArray) -> list[str]:
    return [f"{int(of.sum())}/{int(of.notnull().sum())}" for of in inside.transpose("search", "seed")]


def _truth_known(found: Mapping[str, xr.Dataset]) -> bool:
    return all(SMALLEST in each.search for each in found.values())
