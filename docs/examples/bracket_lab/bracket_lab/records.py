"""The record `bracket-attention`: the analysis of this package over runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mnemoscope as ms
from mnemoscope.records import MeasuredRuns, Options, Record, draw_sequences, register

if TYPE_CHECKING:
    import xarray as xr

LIMITS = (
    "The share of its attention that a head gives to the opening bracket that has to be closed, from the position "
    "where the closing one is predicted. It shows where heads look, not what they move.",
)


@dataclass(frozen=True, kw_only=True)
class BracketAttention(Options):
    """Attention from every answer to the bracket that it closes; heads by role."""

    n: int = 1024
    """Words."""


def measure(run: ms.Run, options: BracketAttention) -> dict[str, xr.Dataset]:
    """The shares of one run, heads by role: head numbers mean nothing across seeds."""
    from bracket_lab.analyses import match_attention
    from bracket_lab.tasks import MatchingBrackets

    task = run.spec.task
    if not isinstance(task, MatchingBrackets):
        raise ms.InputError(f"bracket-attention needs runs of {MatchingBrackets.name}; {run.path} is of {task.name}")
    found = match_attention(run.model(options.step), task, draw_sequences(run, options, "bracket-attention"))
    return {"match_attention": ms.analyses.by_role(found, ms.analyses.last_roles(run))}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The shares, a row per role, and what a head gets that attends to all positions alike."""
    found = measured.results["match_attention"]
    skills = found.skill.values.tolist()
    rows = [
        [role, *(ms.report.mean_with_range(found.share.sel(role=role, skill=skill), ".3f") for skill in skills)]
        for role in found.role.values.tolist()
    ]
    rows.append(
        ["all positions alike", *(ms.report.mean_with_range(found.even.sel(skill=skill), ".3f") for skill in skills)]
    )
    title = "attention to the bracket to close"
    return [ms.report.Table(name="shares", title=title, header=("head", *skills), rows=rows)]


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The same as bars."""
    import plotly.graph_objects as go

    mean = measured.results["match_attention"].share.mean("seed")
    roles, skills = mean.role.values.tolist(), mean.skill.values.tolist()
    bars = [go.Bar(x=roles, y=mean.sel(skill=skill).values, name=skill) for skill in skills]
    return [("Share of attention, mean over seeds.", go.Figure(bars, ms.report.LAYOUT))]


def finding(measured: MeasuredRuns) -> str:
    """The head that looks at the bracket most, skill by skill."""
    share, found = measured.results["match_attention"].share, []
    for skill in share.skill.values.tolist():
        top = ms.report.findings.largest(share.sel(skill=skill))
        if top is not None:
            found.append(
                f"{skill} the {top.place['role'].removeprefix('the ')} ({ms.report.mean_with_range(top.values, '.2f')})"
            )
    return f"Most attention to the bracket to close: {'; '.join(found)}."


register(
    Record(
        name="bracket-attention",
        options=BracketAttention,
        measure=measure,
        tables=tables,
        figures=figures,
        finding=finding,
        limits=LIMITS,
    )
)
