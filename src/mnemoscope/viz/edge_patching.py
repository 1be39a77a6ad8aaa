"""Path patching over seeds, with the estimates beside it: rows of text, scatter plots, and circuits by role."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.analyses.roles import HEAD, called
from mnemoscope.core.edge import Edge
from mnemoscope.viz.edges import circuit_figure
from mnemoscope.viz.figures import LAYOUT
from mnemoscope.viz.patching import WORDS, difference
from mnemoscope.viz.tables import spread

MOST = 40
"""Edges of a table."""
TOP = (3, 5)
"""Largest effects whose overlap is shown."""
_COLOURS = ("#1f5fbf", "#c8501e")


def edge_header(effects: Mapping[str, xr.Dataset]) -> list[str]:
    """Column names of `effect_rows`: one for each skill and direction, and how many seeds have an edge if not all."""
    words = [f"{skill}, {WORDS[str(d)]}" for skill, found in effects.items() for d in found.direction.values]
    return ["edge", *words, *(["seeds that have it"] if some_lack(effects) else [])]


def effect_rows(effects: Mapping[str, xr.Dataset], metric: str) -> list[list[str]]:
    """The difference that is carried, then necessity and sufficiency of the largest edges in the order of the model.

    All are mean [range] over seeds. Below 0 the difference is one of a model that answers the other way round.

    Args:
        effects: Skill to the effects of patching edges by role, along `seed`.
        metric: Which metric.
    """
    found = {skill: each.ratio.sel(metric=metric) for skill, each in effects.items()}
    first = next(iter(effects.values()))
    label, whole = difference(effects, metric)
    there = {label: (whole, first.sizes["seed"])}
    for edge in _largest(found):
        cells = [each.sel(edge=edge, direction=d) for each in found.values() for d in each.direction.values]
        there[edge] = (cells, int((first.component.sel(edge=edge) != "").sum()))
    counted = some_lack(effects)
    return [
        [name, *(spread(cell, ".2f") for cell in cells), *([str(n)] if counted else [])]
        for name, (cells, n) in there.items()
    ]


def estimate_header(estimates: Mapping[str, xr.Dataset]) -> list[str]:
    """Column names of `estimate_rows`."""
    words = [f"{skill}, {name}" for skill, each in estimates.items() for name in ("exact", *each.estimate.values)]
    return ["edge", *words]


def estimate_rows(
    effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str
) -> list[list[str]]:
    """The necessity of every edge of `effect_rows` beside its estimates, mean [range] over seeds.

    Args:
        effects: As for `effect_rows`.
        estimates: Skill to the effects that were estimated, along `estimate` too.
        metric: Which metric.
    """
    exact, guessed = (
        {skill: each.ratio.sel(metric=metric) for skill, each in found.items()} for found in (effects, estimates)
    )
    rows = []
    for edge in _largest(exact):
        at = {"edge": edge, "direction": "noising"}
        cells = []
        for skill in exact:
            cells += [exact[skill].sel(at), *guessed[skill].sel(at).transpose("estimate", ...)]
        rows.append([edge, *(spread(cell, ".2f") for cell in cells)])
    return rows


ERROR_HEADER = (
    "skill",
    "estimate",
    "of",
    "Pearson",
    "sign agreement",
    *(f"overlap of the top {n}" for n in TOP),
    "mean absolute error",
    "relative",
)


def error_rows(errors: Mapping[str, xr.Dataset], metric: str) -> list[list[str]]:
    """How far each estimate is from the exact sweep of its model, mean [range] over seeds.

    Args:
        errors: Skill to the figures of `approximation`, along `seed` and `estimate`.
        metric: Which metric.
    """
    rows = []
    for skill, found in errors.items():
        for estimate in found.estimate.values:
            for direction in found.direction.values:
                at = found.sel(metric=metric, estimate=estimate, direction=direction)
                cells = [at.pearson, at.sign_agreement, *(at.precision.sel(top=n) for n in TOP)]
                cells += [at.mean_absolute_error, at.relative_error]
                rows.append([skill, str(estimate), WORDS[str(direction)], *(spread(cell, ".2f") for cell in cells)])
    return rows


def estimate_figure(effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str) -> go.Figure:
    """Estimated against exact necessity of every edge in every seed, a panel a skill; right ones lie on the line."""
    figure = make_subplots(1, len(effects), subplot_titles=list(effects), shared_yaxes=True)
    at = {"metric": metric, "direction": "noising"}
    for column, (skill, found) in enumerate(effects.items(), 1):
        exact = found.ratio.sel(at).transpose("seed", "edge")
        ends = [min(0.0, float(exact.min())), max(1.0, float(exact.max()))] if exact.notnull().any() else [0.0, 1.0]
        line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": "#b8bfca", "width": 1}, hoverinfo="skip")
        figure.add_trace(line.update(showlegend=False), 1, column)
        labels = [f"{edge}, seed {seed}" for seed in exact.seed.values for edge in exact.edge.values]
        for estimate, colour in zip(estimates[skill].estimate.values, _COLOURS, strict=True):
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


def role_circuit(chosen: Sequence[Edge], ratio: xr.DataArray, component: xr.DataArray) -> tuple[str, go.Figure] | None:
    """The circuit over seeds, and in words over which; none where every weight is missing.

    A mean over seeds is drawn where heads of one role lie in one layer in all of them; otherwise the first seed.

    Args:
        chosen: The edges of the model, heads by number.
        ratio: Weights over (seed, edge), edges by role.
        component: Over (seed, role): the head or MLP that has the role.
    """
    heads = component.sel(role=[HEAD.fullmatch(name) is not None for name in component.isel(seed=0).values])
    names, several = _places(heads), ratio.sizes["seed"] > 1
    words = f"mean over {ratio.sizes['seed']} seeds"
    if names is None or not several:
        first = heads.isel(seed=0)
        names = dict(zip(first.values.tolist(), first.role.values.tolist(), strict=True))
        ratio, several, words = ratio.isel(seed=[0]), False, f"seed {int(first.seed)}"
    labels = [called(str(edge), names) for edge in chosen]
    weights = ratio.mean("seed").sel(edge=labels).assign_coords(edge=[str(edge) for edge in chosen])
    if weights.isnull().all():
        return None
    weights.attrs["unit"] = "necessity"
    return words, circuit_figure(chosen, weights, weights.notnull(), names=names, numbered=not several)


def _places(heads: xr.DataArray) -> dict[str, str] | None:
    """Heads to roles, those of a layer numbered in the order of roles; none where seeds have them in other layers."""
    layers = [[name.partition("H")[0] for name in of_seed] for of_seed in heads.transpose("seed", "role").values]
    if any(of_seed != layers[0] for of_seed in layers):
        return None
    roles = [str(role) for role in heads.role.values]
    return {
        f"{layer}H{layers[0][:i].count(layer)}": role
        for i, (layer, role) in enumerate(zip(layers[0], roles, strict=True))
    }


def _largest(found: Mapping[str, xr.DataArray]) -> list[str]:
    """The edges whose effect is largest for some skill, in their order."""
    sizes = [abs(each.mean("seed")).max("direction") for each in found.values()]
    size = np.nanmax(np.stack([np.nan_to_num(each.values, nan=-1) for each in sizes]), 0)
    largest = sorted(np.argsort(-size, kind="stable")[:MOST])
    edges = next(iter(found.values())).edge.values
    return [str(edges[i]) for i in largest]


def some_lack(effects: Mapping[str, xr.Dataset]) -> bool:
    """Whether heads of one role lie in different layers, so that seeds differ in their edges."""
    return bool((next(iter(effects.values())).component == "").any())
