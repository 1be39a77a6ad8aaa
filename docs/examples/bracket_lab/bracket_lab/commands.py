"""`mnemoscope bracket-attention`: the analysis of this package over runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope.cli import AnalysisOptions, Results, Shown, analysis_command

NOTES = (
    "The share of its attention that a head gives to the opening bracket that has to be closed, from the position "
    "where the closing one is predicted. It shows where heads look, not what they move.",
)


@dataclass(frozen=True, kw_only=True)
class BracketAttention(AnalysisOptions):
    """Attention from every answer to the bracket that it closes; heads by role."""

    n: int = 1024
    """Words."""


def measure(run: ms.Run, options: BracketAttention) -> Results:
    """The shares of one run, heads by role: head numbers mean nothing across seeds."""
    from bracket_lab.analyses import match_attention
    from bracket_lab.tasks import MatchingBrackets

    task = run.spec.task
    if not isinstance(task, MatchingBrackets):
        raise ms.InputError(f"bracket-attention needs runs of {MatchingBrackets.name}; {run.path} is of {task.name}")
    stream = ms.generator(run.spec.seed, "bracket-attention", options.split)
    batch = task.sample(options.n, split=options.split, generator=stream)
    found = match_attention(run.model(options.step), task, batch)
    return {"match_attention": ms.analyses.by_role(found, ms.analyses.last_roles(run))}


def show(results: Results, options: BracketAttention, runs: Sequence[ms.Run]) -> Shown:
    """A table with a row per role, and the same as bars."""
    import plotly.graph_objects as go

    found = results["match_attention"]
    roles, skills = found.role.values.tolist(), found.skill.values.tolist()
    rows = [[role, *(ms.viz.spread(found.share.sel(role=role, skill=s), ".3f") for s in skills)] for role in roles]
    rows.append(["all positions alike", *(ms.viz.spread(found.even.sel(skill=s), ".3f") for s in skills)])
    table = ms.viz.Table(name="shares", title="attention to the bracket to close", header=("head", *skills), rows=rows)
    mean = found.share.mean("seed")
    figure = go.Figure([go.Bar(x=roles, y=mean.sel(skill=s).values, name=s) for s in skills], ms.viz.LAYOUT)
    return Shown(tables=[table], figures=[("Share of attention, mean over seeds.", figure)], notes=NOTES)


analysis_command("bracket-attention", BracketAttention, measure=measure, show=show)
