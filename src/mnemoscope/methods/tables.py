"""Tables and figures of methods on known circuits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.methods.method import describe
from mnemoscope.methods.summary import by_family, summarise
from mnemoscope.report.figures import LAYOUT, PALETTE
from mnemoscope.report.tables import Number, Table, interval, pluralise, single_number

LIMITS = (
    "AUROC: the share of pairs of a true and a false edge that the scores rank rightly, ties half; .5 is chance. "
    "Precision at size: true edges among as many of the highest score as the circuit has. Precision and recall are of "
    "the method's own choice; where it makes none, of the fewest edges of the largest scores that keep .9 of the "
    "effect.",
    "CPR and CMD (MIB): the areas under faithfulness, and under its distance from one, by share of edges, on pairs "
    "that had no part in the scores. Absolute: edges ranked by the size of the score; signed: by the score itself. "
    "InterpBench protocol: AUROC as MIB's benchmark computes it, from ten circuits grown from the logits.",
    "A circuit is known by construction on these pairs: its edges carry the answer, and no other edge carries any of "
    "it. Small models with clean circuits are easier than trained ones: a method that succeeds here has shown no more "
    "than that. Of trained models claims have established some edges, present or absent; only these count, and a "
    "method that took part in establishing them is left out there.",
    "Spread by source: families, their variants, noise drawn again, prompts drawn again. The last column is the "
    "standard error of the mean over these families under other noise and prompts; the intervals of the first table "
    "are for other families of this kind, and hold all sources.",
)
_RANKINGS = {"absolute": (PALETTE[0], "circle"), "signed": (PALETTE[1], "diamond-open")}


def method_table(summary: xr.Dataset) -> Table:
    """A row for every method: means over families, with intervals where there are enough of them."""
    columns = {
        "AUROC": ("auroc", "absolute"),
        "AUROC, signed": ("auroc", "signed"),
        "over random": ("over_random", "absolute"),
        "precision at size": ("precision_at_size", "absolute"),
        "precision": ("precision", None),
        "recall": ("recall", None),
        "edges chosen": ("n_chosen", None),
        "CPR": ("CPR", "absolute"),
        "CPR, signed": ("CPR", "signed"),
        "CMD": ("CMD", "absolute"),
        "CMD, signed": ("CMD", "signed"),
        "InterpBench protocol": ("protocol_auroc", None),
        "CPU s a circuit": ("seconds", None),
    }
    columns = {name: column for name, column in columns.items() if column[0] in summary}
    rows = []
    for name in summary.finder.values.tolist():
        at = summary.sel(finder=name)
        cells = [
            _cell(at[measure] if ranking is None else at[measure].sel(ranking=ranking), int(at.n_families))
            for measure, ranking in columns.values()
        ]
        rows.append([name, single_number(int(at.n_circuits), ".0f"), *cells])
    at = summary.attrs
    draws = f"{pluralise(at['n_noise'], 'draw')} of noise, {pluralise(at['n_draws'], 'draw')} of {at['n']} pairs"
    title = (
        f"means over families of circuits ({at['n_families']}, with {pluralise(at['n_circuits'], 'circuit')}), {draws} "
        "[95 % interval over families]"
    )
    return Table(name="methods", title=title, header=["method", "circuits", *columns], rows=rows)


def _cell(values: xr.DataArray, n: int) -> Number:
    mean, low, high = values.sel(bound=["mean", "low", "high"]).values.tolist()
    if np.isnan(mean):
        return Number("–", mean=mean, n=n)
    return (
        Number(single_number(mean, ".2f"), mean=mean, n=n) if np.isnan(low) else interval(mean, low, high, ".2f", n=n)
    )


def component_table(found: xr.Dataset) -> Table:
    """A row for every method: the spread of its AUROC by source, and the error of the mean with these families."""
    rows = []
    for name in found.finder.values.tolist():
        at = found.sel(finder=name)
        cells = [*at.auroc.values.tolist(), float(at.auroc_fixed)]
        rows.append([name, *("–" if np.isnan(cell) else single_number(cell, ".3f") for cell in cells)])
    title = "AUROC, by size of the scores: standard deviation by source"
    header = ["method", *found.source.values.tolist(), "error with these families"]
    return Table(name="components", title=title, header=header, rows=rows)


def kind_table(tried: xr.DataTree, seed: int = 0) -> Table | None:
    """AUROC on circuits known by construction and on trained models; None where there is one kind only."""
    share = {name: float(child.judged.mean()) for name, child in tried.children.items()}
    kinds = {
        "by construction": [name for name, judged in share.items() if judged == 1],
        "trained": [name for name, judged in share.items() if 0 < judged < 1],
    }
    if not all(kinds.values()):
        return None
    parts = {kind: xr.DataTree.from_dict({n: tried[n].to_dataset() for n in names}) for kind, names in kinds.items()}
    found = {kind: summarise(part, seed=seed) for kind, part in parts.items()}
    rows = [
        [
            name,
            *(
                _cell(each.auroc.sel(finder=name, ranking="absolute"), each.attrs["n_families"])
                for each in found.values()
            ),
        ]
        for name in next(iter(found.values())).finder.values.tolist()
    ]
    counts = ", ".join(f"{each.attrs['n_families']} {kind}" for kind, each in found.items())
    title = f"AUROC by what is known; families: {counts}"
    return Table(name="kinds", title=title, header=["method", *kinds], rows=rows)


def circuit_table(tried: xr.DataTree) -> Table:
    """A row for every circuit: its family, edges, and the AUROC of every method, mean over draws."""
    children = {name: child.to_dataset() for name, child in tried.children.items()}
    methods = next(iter(children.values())).finder.values.tolist()
    rows = []
    for name, each in children.items():
        found = each.auroc.sel(ranking="absolute").mean("draw")
        n_judged = int(each.judged.sum())
        edges = f"{int(each.truth.sum())} of {n_judged}"
        edges += f" judged, {each.sizes['edge']} in all" if n_judged < each.sizes["edge"] else ""
        cells = ["–" if np.isnan(value) else single_number(value, ".2f") for value in found.values]
        rows.append([name, each.attrs["family"], edges, *cells])
    title = "AUROC by circuit, by size of the scores, mean over draws"
    return Table(name="circuits", title=title, header=["circuit", "family", "edges", *methods], rows=rows, n_text=3)


def method_list(names: Sequence[str]) -> Table:
    """A line on every method."""
    rows = [[name, describe(name)] for name in names]
    return Table(name="descriptions", title="methods", header=["method", "what it does"], rows=rows, n_text=2)


def figures(tried: xr.DataTree, summary: xr.Dataset) -> list[tuple[str, go.Figure]]:
    """AUROC by method, CPR and CMD by method, and faithfulness by share of edges, with captions."""
    families = by_family(tried)
    return [
        (
            "AUROC by method: mean over families with 95 % intervals, a dot for each family; the line is chance.",
            measures_figure(summary, families, {"auroc": "AUROC"}, line=0.5),
        ),
        (
            "CPR (higher is better) and CMD (lower is better), mean over families with 95 % intervals.",
            measures_figure(summary, families, {"CPR": "CPR", "CMD": "CMD"}),
        ),
        (
            "Faithfulness by share of edges, those of the largest scores; mean over families. Methods are switched by "
            "a click on the legend.",
            faithfulness_figure(summary),
        ),
    ]


def measures_figure(
    summary: xr.Dataset, families: xr.Dataset, measures: dict[str, str], *, line: float | None = None
) -> go.Figure:
    """A panel for each measure: methods from the best to the worst by the first, with whiskers over families."""
    order = summary[next(iter(measures))].sel(bound="mean", ranking="absolute")
    known = [name for name in summary.finder.values if not np.isnan(order.sel(finder=name))]
    names = sorted(known, key=lambda name: float(order.sel(finder=name)))
    figure = make_subplots(1, len(measures), subplot_titles=list(measures.values()), shared_yaxes=True)
    for column, measure in enumerate(measures, 1):
        for shift, (ranking, (colour, symbol)) in zip((0.16, -0.16), _RANKINGS.items(), strict=True):
            at = summary[measure].sel({"finder": names, "ranking": ranking})
            mean, low, high = (at.sel(bound=bound).values for bound in ("mean", "low", "high"))
            dots = families[measure].sel({"finder": names, "ranking": ranking}).transpose("finder", "family").values
            figure.add_trace(
                go.Scatter(
                    x=dots.ravel(),
                    y=np.repeat(np.arange(len(names)) + shift, dots.shape[1]),
                    mode="markers",
                    marker={"size": 4, "color": colour, "opacity": 0.25},
                    hovertext=[f"{name}, {family}" for name in names for family in families.family.values],
                    hovertemplate="%{hovertext}: %{x:.3f}<extra></extra>",
                    legendgroup=ranking,
                    showlegend=False,
                ),
                1,
                column,
            )
            figure.add_trace(
                go.Scatter(
                    x=mean,
                    y=np.arange(len(names)) + shift,
                    error_x={"array": high - mean, "arrayminus": mean - low, "thickness": 1.2, "width": 2},
                    mode="markers",
                    marker={"size": 8, "color": colour, "symbol": symbol},
                    name=ranking,
                    legendgroup=ranking,
                    showlegend=column == 1,
                    hovertext=names,
                    hovertemplate="%{hovertext}: %{x:.3f}<extra></extra>",
                ),
                1,
                column,
            )
        if line is not None:
            style: Any = {"line": {"dash": "dash", "color": "#c3c9d3", "width": 1}, "row": 1, "col": column}
            figure.add_vline(x=line, **style)
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, row=1, col=1, automargin=True)
    return figure.update_layout(**LAYOUT).update_layout(height=120 + 26 * len(names), legend={"orientation": "h"})


def faithfulness_figure(summary: xr.Dataset) -> go.Figure:
    """A line for each method, by size of its scores."""
    figure = go.Figure()
    found = summary.faithfulness.sel(bound="mean", ranking="absolute")
    area = summary.CPR.sel(bound="mean", ranking="absolute")
    names = [name for name in summary.finder.values if not np.isnan(area.sel(finder=name))]
    for number, name in enumerate(sorted(names, key=lambda name: -float(area.sel(finder=name)))):
        colour, dash = PALETTE[number % len(PALETTE)], ("solid", "dash", "dot")[number % 3]
        figure.add_trace(
            go.Scatter(
                x=summary.share.values,
                y=found.sel(finder=name).values,
                mode="lines+markers",
                marker={"size": 5},
                line={"width": 1.5, "color": colour, "dash": dash},
                name=name,
                hovertemplate=f"{name}, %{{x:.1%}} of edges: %{{y:.3f}}<extra></extra>",
            )
        )
    figure.add_hline(y=1, line={"dash": "dash", "color": "#c3c9d3", "width": 1})
    figure.update_xaxes(title="share of edges", type="log", tickformat=".1%")
    figure.update_yaxes(title="faithfulness")
    return figure.update_layout(**LAYOUT).update_layout(height=560, legend={"orientation": "h", "y": -0.2})


def finding(summary: xr.Dataset) -> str:
    """The best method by AUROC, and those no better than random scores, in a sentence."""
    auroc = summary.auroc.sel(ranking="absolute")
    means = auroc.sel(bound="mean").where(summary.n_families == summary.attrs["n_families"])
    if not bool(means.notnull().any()):
        return ""
    best = means.finder.values[(means > means.max() - 0.005).values]
    ranks = f"{best[0]} ranks" if len(best) == 1 else f"{', '.join(best[:-1])} and {best[-1]} rank"
    text = f"Of the methods that take every circuit {ranks} true edges best (AUROC {float(means.max()):.2f})."
    if "over_random" not in summary or bool(summary.over_random.sel(bound="low").isnull().all()):
        return text
    low = summary.over_random.sel(bound="low", ranking="absolute")
    weak = [str(name) for name in summary.finder.values if name != "random" and float(low.sel(finder=name)) <= 0]
    return f"{text} Not shown to be better than random scores: {', '.join(weak) or 'none'}."
