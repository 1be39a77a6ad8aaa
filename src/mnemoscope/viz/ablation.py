"""Ablations and dissociation tables, as rows of text and as figures."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.viz.figures import COLOURS, LAYOUT
from mnemoscope.viz.tables import spread


def ablation_header(ablation: xr.Dataset) -> Sequence[str]:
    """Column names of `ablation_rows`."""
    return ("removed", *(f"{skill}, {kind}" for kind in ablation.kind.values for skill in ablation.skill.values))


def ablation_rows(ablation: xr.Dataset) -> list[list[str]]:
    """Accuracy of each skill by kind of ablation: the intact model, then a row a role."""
    cells = [(kind, skill) for kind in ablation.kind.values for skill in ablation.skill.values]
    intact = [spread(ablation.clean_accuracy.sel(skill=skill), ".2f") for _, skill in cells]
    rows = [["nothing", *intact]]
    for role in ablation.role.values:
        at = ablation.accuracy.sel(role=role)
        rows.append([str(role), *(spread(at.sel(kind=kind, skill=skill), ".2f") for kind, skill in cells)])
    return rows


DISSOCIATION_HEADER = (
    "ablation",
    "removed, or pair of skills",
    "skill",
    "accuracy lost",
    "costs",
    "spares",
    "undecided",
)


def dissociation_rows(found: xr.Dataset) -> list[list[str]]:
    """In how many seeds removal costs or spares each skill, for every kind of ablation.

    Args:
        found: Over (seed, kind, role, skill), from `dissociation`.
    """
    rows = []
    for kind in found.kind.values:
        for role in found.role.values:
            for skill in found.skill.values:
                cell = found.sel(kind=kind, role=role, skill=skill)
                counts = Counter(cell.effect.values.tolist())
                states = [str(counts[state]) for state in ("costs", "spares", "undecided")]
                rows.append([str(kind), str(role), str(skill), spread(cell.lost, ".2f"), *states])
    return rows


OUTCOME_HEADER = ("ablation", "skills", "dissociation: seeds")


def outcome_rows(found: xr.Dataset) -> list[list[str]]:
    """For every kind of ablation and pair of skills: in how many seeds they are dissociated singly, doubly, not."""
    skills = found.skill.values.tolist()
    rows = []
    for kind in found.kind.values:
        for skill, other in combinations(skills, 2):
            counts = Counter(found.outcome.sel(kind=kind, skill=skill, other_skill=other).values.tolist())
            outcome = ", ".join(f"{state}: {n}" for state, n in counts.most_common())
            rows.append([str(kind), f"{skill} and {other}", outcome])
    return rows


def ablation_by_role(ablation: xr.Dataset) -> go.Figure:
    """Accuracy of each skill with one component removed; one dot a seed, a bar at the mean.

    Args:
        ablation: Over (seed, kind, role, skill), from `ablate_by_role`.
    """
    kinds = [str(kind) for kind in ablation.kind.values]
    figure = make_subplots(1, len(kinds), subplot_titles=[f"{kind} ablation" for kind in kinds], shared_yaxes=True)
    roles, skills = ([str(name) for name in ablation[dim].values] for dim in ("role", "skill"))
    for column, kind in enumerate(kinds, 1):
        for i, skill in enumerate(skills):
            shift = 0.34 * (i - (len(skills) - 1) / 2)
            cells = [ablation.clean_accuracy.sel(skill=skill)]
            cells += [ablation.accuracy.sel(kind=kind, skill=skill, role=role) for role in roles]
            style = {"name": skill, "legendgroup": skill, "marker_color": COLOURS.get(skill)}
            places = [place + shift for place in range(len(cells))]
            means = [float(cell.mean()) for cell in cells]
            bars = go.Bar(x=places, y=means, width=0.3, opacity=0.35, showlegend=column == 1, **style)
            dots = go.Scatter(
                x=[place for place, cell in zip(places, cells, strict=True) for _ in cell],
                y=[float(value) for cell in cells for value in cell],
                mode="markers",
                marker_size=5,
                showlegend=False,
                hovertemplate="%{y:.3f}<extra></extra>",
                **style,
            )
            figure.add_traces([bars, dots], rows=1, cols=column)
        figure.update_xaxes(
            tickvals=list(range(len(roles) + 1)),
            ticktext=["nothing", *(role.replace(" ", "<br>") for role in roles)],
            row=1,
            col=column,
        )
    figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_yaxes(title="accuracy", row=1, col=1)
    return figure.update_layout(**LAYOUT, height=380)


def drops(ablation: xr.Dataset) -> go.Figure:
    """Accuracy lost without each part, mean over seeds: a heatmap for each kind of ablation.

    Args:
        ablation: Over (seed, kind, role, skill), of any parts.
    """
    kinds = [str(kind) for kind in ablation.kind.values]
    figure = make_subplots(1, len(kinds), subplot_titles=kinds, shared_yaxes=True)
    for column, kind in enumerate(kinds, 1):
        lost = (ablation.clean_accuracy - ablation.accuracy.sel(kind=kind)).mean("seed").transpose("role", "skill")
        heat = go.Heatmap(
            z=lost.values,
            x=[str(skill) for skill in lost.skill.values],
            y=[str(role) for role in lost.role.values],
            zmin=0,
            zmax=1,
            colorscale="Blues",
            showscale=column == len(kinds),
            hovertemplate="%{y}, %{x}: %{z:.3f}<extra></extra>",
        )
        figure.add_trace(heat, 1, column)
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(**LAYOUT, height=max(320, 18 * ablation.sizes["role"] + 120))
