"""Shapley values, interactions, and their agreement with single removals: tables and figures."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.viz.ablation import counted, outcome_table, state_rows
from mnemoscope.viz.figures import LAYOUT, PALETTE, bars_with_dots, heatmaps
from mnemoscope.viz.tables import Table, interval, spread

MOST = 40
"""Pairs of a table."""
MOST_UPRIGHT = 4
"""Names below a narrow heatmap that do not have to be turned."""
_BARS = {"value": ("value", PALETTE[0]), "lost": ("lost without it alone", PALETTE[1])}


def value_tables(values: xr.Dataset, metric: str) -> list[Table]:
    """By skill the value of every part, and the loss without it alone; below the value that all of them carry.

    The second table has the interactions of pairs of parts, the largest first. `values` come from `shapley` by role,
    over (seed, kind, role, skill, metric). Cells are mean [range] over seeds; of one seed the value and its interval.
    """
    interval = f"; in brackets the interval, {values.attrs['interval']}" if values.sizes["seed"] == 1 else ""
    n_pairs = values.sizes["role"] * (values.sizes["role"] - 1) // 2
    most, how = f"the {MOST} largest " if n_pairs > MOST else "", values.attrs["method"] + interval
    skills = [str(skill) for skill in values.skill.values]
    worth = Table(
        name=f"values-{metric}",
        title=f"{metric}: Shapley values, and what is lost without one part alone; {how}",
        header=("missing parts", "part", *(f"{skill}, {what}" for skill in skills for what in ("value", "alone"))),
        rows=_value_rows(values.sel(metric=metric)),
        n_text=2,
    )
    interactions = Table(
        name=f"interactions-{metric}",
        title=f"{metric}: {most}interactions of parts; {how}",
        header=("missing parts", "pair", *skills),
        rows=_interaction_rows(values.sel(metric=metric)),
        n_text=2,
    )
    return [worth, interactions]


def _value_rows(values: xr.Dataset) -> list[list[str]]:
    rows = []
    for kind in values.kind.values:
        for role in values.role.values:
            each = [values.sel(kind=kind, role=role, skill=skill) for skill in values.skill.values]
            cells = [text for at in each for text in (_cell(at, "value"), spread(at.lost, ".2f"))]
            rows.append([str(kind), str(role), *cells])
        carried = [spread(values.carried.sel(kind=kind, skill=skill), ".2f") for skill in values.skill.values]
        rows.append([str(kind), "all together", *(text for cell in carried for text in (cell, cell))])
    return rows


def _interaction_rows(values: xr.Dataset) -> list[list[str]]:
    rows = []
    for kind in values.kind.values:
        pairs = list(combinations(values.role.values.tolist(), 2))
        of_pairs = [values.sel(kind=kind, role=one, other=other) for one, other in pairs]
        sizes = [-float(abs(of.interaction.mean("seed")).max()) for of in of_pairs]
        for i in np.argsort(sizes, kind="stable")[:MOST]:
            cells = [_cell(of_pairs[i].sel(skill=skill), "interaction") for skill in values.skill.values]
            rows.append([str(kind), " and ".join(pairs[i]), *cells])
    return rows


def agreement_tables(found: xr.Dataset) -> list[Table]:
    """In how many seeds removal and value agree on a part and a skill, and why they do not; and on pairs of skills."""
    states = ("agrees", "disagrees", "undecided")
    rows = state_rows(found, means=("lost_share", "value_share"), state="agreement", states=states)
    counts = ("agree", "disagree", "undecided", "why they disagree: seeds")
    agreement = Table(
        name="agreement",
        title=f"removal and value, as shares of what all parts carry in accuracy, margin {found.attrs['margin']:g}",
        header=("missing parts", "part", "skill", "lost alone", "value", *counts),
        rows=[[*row, _reasons(at)] for row, at in rows],
        n_text=3,
    )
    outcomes = {"by removal: seeds": "removal_outcome", "by value: seeds": "value_outcome"}
    title = "dissociation of skills by removal and by value"
    return [agreement, outcome_table(found, title, outcomes, kinds="missing parts")]


def value_figure(values: xr.Dataset, metric: str) -> go.Figure:
    """Values, and the loss without each part alone: bars are means, dots are seeds; one panel per skill and kind."""
    kinds, skills, roles = ([str(name) for name in values[dim].values] for dim in ("kind", "skill", "role"))
    titles = [skill if len(kinds) == 1 else f"{skill}, {kind}" for kind in kinds for skill in skills]
    figure = make_subplots(len(kinds), len(skills), subplot_titles=titles, shared_yaxes=True)
    for place, (kind, skill) in enumerate((kind, skill) for kind in kinds for skill in skills):
        row, column = divmod(place, len(skills))
        for side, (name, (words, colour)) in zip((-1, 1), _BARS.items(), strict=True):
            cells = values[name].sel(metric=metric, kind=kind, skill=skill).transpose("role", "seed")
            places = [i + 0.2 * side for i in range(len(roles))]
            look = {"name": words, "colour": colour, "width": 0.36, "legend": not place}
            figure.add_traces(bars_with_dots(list(cells), places, **look, labels=roles), rows=row + 1, cols=column + 1)
    figure.update_yaxes(tickvals=list(range(len(roles))), ticktext=_broken(roles), range=[len(roles) - 0.5, -0.5])
    unit = f"log-probability ({values.attrs['log_prob_unit']})" if metric == "log_prob" else metric
    figure.update_xaxes(matches="x").update_xaxes(title=unit, row=len(kinds))
    figure.update_layout(**LAYOUT, height=120 + len(kinds) * (60 + 44 * len(roles)), barmode="overlay")
    figure.update_layout(margin={"l": 90, "r": 20, "t": 30, "b": 90})
    return figure.update_layout(legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"})


def interaction_figure(values: xr.Dataset, metric: str) -> go.Figure:
    """A heatmap of interactions, mean over seeds, for each skill and kind; arguments as for `value_figure`."""
    mean = values.interaction.sel(metric=metric, drop=True).mean("seed")
    several = mean.sizes["kind"] > 1
    panels = {
        f"{skill}, {kind}" if several else str(skill): mean.sel(kind=kind, skill=skill, drop=True)
        for kind in mean.kind.values
        for skill in mean.skill.values
    }
    high = float(abs(mean).max()) or 1.0
    figure = heatmaps(panels, low=-high, high=high, columns=1)
    names = mean.other.values.tolist()
    shown = _broken(names) if len(names) <= MOST_UPRIGHT else names
    figure.update_xaxes(title="", showticklabels=False, tickvals=names, ticktext=shown)
    return figure.update_xaxes(showticklabels=True, row=len(panels))


def _cell(at: xr.Dataset, name: str) -> str:
    """Mean [range] over seeds; of one seed its interval."""
    if at.sizes["seed"] > 1 or bool(at[name].isnull().all()):
        return spread(at[name], ".2f")
    before = "" if name == "value" else f"{name}_"
    value, low, high = (float(at[column].isel(seed=0)) for column in (name, f"{before}low", f"{before}high"))
    return interval(value, low, high, ".2f", n=1, each=at[name])


def _broken(names: Iterable[str]) -> list[str]:
    return [name.replace(" ", "<br>", 1) for name in names]


def _reasons(at: xr.Dataset) -> str:
    pairs = zip(at.reason.values.tolist(), at.partner.values.tolist(), strict=True)
    return counted(f"{reason} with {partner}" if partner else reason for reason, partner in pairs if reason)
