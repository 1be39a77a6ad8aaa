"""Weights of runs cut at a rank (`analyses.truncation`): answers with, or without, the largest singular directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.site import ParamSite
from mnemoscope.records.record import MeasuredRuns, Options, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Truncate(Options):
    """Weights replaced by low-rank parts of themselves: what the model says at every rank, skill by skill."""

    weights: tuple[str, ...] = ()
    """Such as "L1 W_out", "L1H0 W_O", W_E or blocks.1.mlp.W_out; joined by + to be cut together; none: the last MLP."""
    parts: tuple[Literal["top", "rest"], ...] = ("top", "rest")
    """top: the largest components up to the rank are kept; rest: they are removed."""
    ranks: tuple[int, ...] = ()
    """Ranks of the cuts; none: 0, 1, 2, 4 and so on to the full rank."""
    n: int = 512
    """Sequences of each subgroup."""


LIMITS = (
    "A weight is replaced by part of its singular value decomposition: only its largest components up to a rank, or "
    "all but these. At full rank, or with none removed, the model is as it was; with none kept the weight is zero, but "
    "not its bias.",
    "This shows which predictions need the large and which the small singular directions, given the rest of the model "
    "as it is. It does not show what a direction means, nor that one with a large singular value is ever read.",
)
KEPT = {"top": "largest kept", "rest": "largest removed"}
ENOUGH = 0.9
"""Share of the intact model's probability that counts as nearly all of it."""
ROW_HEIGHT = 280


def measure(run: ms.Run, options: Truncate) -> dict[str, xr.Dataset]:
    """Cut the weights of one run; the entry of its task may add results."""
    from mnemoscope.analyses.predictions import skill_targets

    model, task = run.hooked(options.step), run.spec.task
    batch = draw_sequences(run, options, "truncation")
    weights = _weights(model, options.weights)
    cuts = {"weights": weights, "ranks": options.ranks or _ranks(model, weights), "parts": options.parts}
    targets = skill_targets(batch, {name: mask for name, mask in task.skills(batch).items() if mask.any()})
    added = ms.report.find_report(task).truncation
    if added is None:
        return {"truncation": ms.analyses.truncate(model, batch, targets=targets, **cuts)}
    reference = draw_sequences(run, options, "reference")
    return added.measure(model, task, batch, reference=reference, targets=targets, cuts=cuts)


def _weights(model: ms.HookedModel, names: Sequence[str]) -> ms.analyses.WeightSets:
    """The weights with these names, several joined by + together; none: those of the last MLP, or of the last heads."""
    if names:
        return {name: tuple(ParamSite.read(word.strip()) for word in name.split("+")) for name in names}
    if not model.cfg.attn_only:
        return ms.analyses.last_mlp(model)
    sites = [ParamSite(name=name, layer=model.cfg.n_layers - 1) for name in ("W_V", "W_O")]
    return {str(site): (site,) for site in sites}


def _ranks(model: ms.HookedModel, weights: ms.analyses.WeightSets) -> list[int]:
    """0, powers of two, and the largest full rank."""
    from mnemoscope.interventions.run import weight_at

    full = max(min(weight_at(model, site).shape[-2:]) for sites in weights.values() for site in sites)
    return [0, *(2**i for i in range(full.bit_length()) if 2**i < full), full]


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Probability and accuracy of every target, and the tables that the task adds."""
    found, added = measured.results["truncation"], _task_truncation(measured)
    own = [score_table(found, "probability"), score_table(found, "accuracy")]
    return own if added is None else [*own, *added.tables(measured.results)]


def _task_truncation(measured: MeasuredRuns) -> ms.report.Truncation | None:
    return ms.report.find_report(measured.runs[0].spec.task).truncation


def score_table(found: xr.Dataset, score: Literal["probability", "accuracy"]) -> ms.report.Table:
    """The intact model, then every weight, part and rank: one score of each target, mean [range] over seeds."""
    shares = ["context share"] if "context_share" in found and score == "probability" else []
    rows = [["nothing", "", "", *_cells(found, "clean_", score)]]
    for weight, part, rank in product(found.weight.values, found.part.values, found["rank"].values):
        at = found.sel(weight=weight, part=part, rank=rank)
        rows.append([str(weight), KEPT[str(part)], str(int(rank)), *_cells(at, "", score)])
    return ms.report.Table(
        name=score,
        title=f"{score} of every target with a weight cut at a rank",
        header=["weight", "components", "rank", *(str(target) for target in found.target.values), *shares],
        rows=rows,
        n_text=2,
    )


def _cells(at: xr.Dataset, when: str, score: str) -> list[str]:
    scores = [at[f"{when}{score}"].sel(target=target) for target in at.target.values]
    shares = [at[f"{when}context_share"]] if "context_share" in at and score == "probability" else []
    return [ms.report.mean_with_range(cell, ".2f") for cell in (*scores, *shares)]


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Curves over the rank, and the spectrum."""
    found = measured.results["truncation"]
    over = ", mean and range over seeds" if found.sizes["seed"] > 1 else ""
    caption = f"Probability of every target over the rank of the cut{over}; dotted: the intact model."
    return [
        (caption, rank_figure(found)),
        ("Singular values, largest first; one line per seed.", spectrum_figure(found)),
    ]


def rank_figure(found: xr.Dataset) -> Any:
    """Mean probability of every target over ranks at equal distances, with the range over seeds; dotted: intact."""
    from plotly.subplots import make_subplots

    weights, parts = ([str(name) for name in found[dim].values] for dim in ("weight", "part"))
    titles = [f"{weight}, {KEPT[part]}" for weight in weights for part in parts]
    figure = make_subplots(
        len(weights),
        len(parts),
        subplot_titles=titles,
        shared_yaxes=True,
        vertical_spacing=min(0.3, 90 / (ROW_HEIGHT * len(weights))),
    )
    for row, weight in enumerate(weights, 1):
        for column, part in enumerate(parts, 1):
            at = found.sel(weight=weight, part=part)
            for target, colour in zip(found.target.values, cycle(ms.report.PALETTE)):
                values = at.probability.sel(target=target)
                intact = float(at.clean_probability.sel(target=target).mean("seed"))
                for trace in _curve(values, str(target), colour, intact, legend=(row, column) == (1, 1)):
                    figure.add_trace(trace, row, column)
    figure.update_xaxes(title="rank of the cut", type="category")
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="probability", col=1)
    return figure.update_layout(**ms.report.LAYOUT, height=110 + ROW_HEIGHT * len(weights))


def _curve(values: xr.DataArray, name: str, colour: str, intact: float, *, legend: bool) -> list[Any]:
    """The range over seeds as a band, the intact model and the mean."""
    import plotly.graph_objects as go

    from mnemoscope.core.numerics import mean_and_range

    ranks = [str(int(rank)) for rank in values["rank"].values]
    summary = mean_and_range(values)
    mean, low, high = (summary.sel(summary=which).values.tolist() for which in ("mean", "min", "max"))
    quiet = {"legendgroup": name, "showlegend": False, "hoverinfo": "skip"}
    band = go.Scatter(
        x=[*ranks, *ranks[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=colour,
        opacity=0.18,
        line={"width": 0},
        mode="lines",
        **quiet,
    )
    level = go.Scatter(
        x=[ranks[0], ranks[-1]],
        y=[intact, intact],
        mode="lines",
        line={"color": colour, "dash": "dot", "width": 1},
        **quiet,
    )
    line = go.Scatter(
        x=ranks,
        y=mean,
        mode="lines+markers",
        name=name.replace("_", " "),
        line={"color": colour, "width": 1.6},
        marker={"size": 5},
        legendgroup=name,
        showlegend=legend,
        customdata=list(zip(low, high, strict=True)),
        hovertemplate=f"{name}, %{{x}}: %{{y:.3f}} [%{{customdata[0]:.3f}}, %{{customdata[1]:.3f}}]<extra></extra>",
    )
    return [*([band] if values.sizes["seed"] > 1 else []), level, line]


def spectrum_figure(found: xr.Dataset) -> Any:
    """Singular values of every matrix, largest first, one line per seed."""
    import plotly.graph_objects as go

    figure, values = go.Figure(), found.singular_value.assign_coords(index=found["index"].values + 1)
    for matrix, colour in zip(found.matrix.values, cycle(ms.report.PALETTE)):
        lines = ms.report.seed_lines(
            values.sel(matrix=matrix, drop=True), str(matrix), colour, "%{y:.3g}", mode="lines"
        )
        figure.add_traces(lines)
    figure.update_xaxes(title="component")
    figure.update_yaxes(title="singular value", rangemode="tozero")
    return figure.update_layout(**ms.report.LAYOUT, height=320)


def finding(measured: MeasuredRuns) -> str:
    """The number of singular directions that every target needs, for the weight or weights that were cut last."""
    truncation = measured.results["truncation"]
    weight = str(truncation.weight.values[-1])
    at = truncation.sel(weight=weight)
    if "top" not in truncation.part:
        return ""
    share = (at.probability.sel(part="top") / at.clean_probability).mean("seed")
    found = []
    for target in map(str, truncation.target.values):
        kept = share.sel(target=target).values
        enough = [int(rank) for rank, value in zip(share["rank"].values, kept, strict=True) if value >= ENOUGH]
        found.append(f"{target} rank {enough[0]}" if enough else f"{target} more than any rank tried")
    full = int(at.full_rank.max())
    return f"To keep {ENOUGH:g} of the probability of its answer with {weight} cut, of {full}: {'; '.join(found)}."


def notes(measured: MeasuredRuns) -> Sequence[str]:
    """The note of the task, if it adds something."""
    added = _task_truncation(measured)
    return () if added is None else (added.note,)


register_module(__name__, Truncate)
