"""Shapley values of a run's parts by role (`analyses.shapley`), interactions, and agreement with single removals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.records.record import MeasuredRuns, Options, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Shapley(Options):
    """The worth of each head and MLP for each skill when any of the others may be missing too; heads by role."""

    kinds: tuple[Literal["zero", "mean", "resample"], ...] = ("mean",)
    """Stand-ins for a missing part: zeros, means, activations of another sequence."""
    within: str | None = None
    """Latent of the task: means and resampled activations come from sequences of the same class."""
    samples: int | None = None
    """Sampled squares of orders, at least 8; none: every set of up to 12 parts, 16 squares of more."""
    n: int = 1024
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


LIMITS = (
    "A part's Shapley value is what it adds to the parts that are there before it, on average over all orders in which "
    "they can come. Values add up to what is lost without all parts, so that parts that can stand in for each other "
    "share what removing one of them alone would not show. An interaction is what a part is worth where the other "
    "is there, less what it is worth where it is not: below 0 they stand in for each other, above 0 they work "
    "together only.",
    "This does not show what a part computes, nor that two parts are connected. Most sets of parts are far from what "
    "the model was trained as, and what stands in for the missing ones matters. Accuracy needs enough of everything, "
    "so that parts whose logits only add up interact in it; look at the log-probability too.",
    "Heads are named by what they are needed for, on one half of the prompts; all numbers are from the other half.",
)
COMPARED = (
    "By removal a part costs a skill if what is lost without it alone is above the margin, by value if its value is, "
    "both as shares of what all parts carry. Where they disagree, redundancy and synergy say that pairs make up at "
    "least half of the difference, and with which part. Neither reading is the right one: removal asks what the model "
    "as it is cannot do without, the value what a part adds to any set of the others."
)
MOST = 40
"""Most pairs of a table."""
MOST_UPRIGHT = 4
"""Most names below a narrow heatmap that need not be turned."""
_BARS = {"value": "value", "lost": "lost without it alone"}


def check(options: Shapley) -> None:
    """Refuse a kind that is named twice, and too few samples."""
    from mnemoscope.analyses.shapley import MIN_SAMPLES

    if len(set(options.kinds)) < len(options.kinds):
        raise InputError(f"--kinds must name each kind once; got {' '.join(options.kinds)}")
    if options.samples is not None:
        in_range("--samples", options.samples, MIN_SAMPLES, float("inf"))


def measure(run: ms.Run, options: Shapley) -> dict[str, xr.Dataset]:
    """Measure values and interactions of one run, by role; where there are two skills, add the agreement."""
    from mnemoscope.analyses.roles import role_prompts

    task, seed, model = run.spec.task, run.spec.seed, run.hooked(options.step)
    selection, test, reference = role_prompts(task, n=options.n, split=options.split, seed=seed)
    named = ms.analyses.choose_roles(model, selection, skills=task.skills(selection), reference=reference)
    values = ms.shapley(
        model,
        test,
        skills=task.skills(test),
        reference=reference,
        kinds=options.kinds,
        within=options.within,
        n_samples=options.samples,
        seed=seed,
    )
    values = ms.analyses.by_role(values, named)
    if values.sizes["skill"] < 2:
        return {"shapley": values}
    return {"shapley": values, "agreement": ms.analyses.removal_agreement(values)}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Values and interactions by every metric, and the agreement with removal where there are two skills."""
    values = measured.results["shapley"]
    found = [table for metric in values.metric.values for table in value_tables(values, str(metric))]
    if "agreement" in measured.results:
        found += agreement_tables(measured.results["agreement"])
    return found


def value_tables(values: xr.Dataset, metric: str) -> list[ms.report.Table]:
    """The value of every part by skill, and the loss without it alone; below, the value that all of them carry.

    The second table has the interactions of pairs of parts, the largest first. `values` come from `shapley` by role,
    over (seed, kind, role, skill, metric). Cells are mean [range] over seeds; for one seed the value and its interval.
    """
    interval = f"; in brackets the interval, {values.attrs['interval']}" if values.sizes["seed"] == 1 else ""
    n_pairs = values.sizes["role"] * (values.sizes["role"] - 1) // 2
    most, how = f"the {MOST} largest " if n_pairs > MOST else "", values.attrs["method"] + interval
    skills = [str(skill) for skill in values.skill.values]
    worth = ms.report.Table(
        name=f"values-{metric}",
        title=f"{metric}: Shapley values, and what is lost without one part alone; {how}",
        header=("missing parts", "part", *(f"{skill}, {what}" for skill in skills for what in ("value", "alone"))),
        rows=_value_rows(values.sel(metric=metric)),
        n_text=2,
    )
    interactions = ms.report.Table(
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
            cells = [
                text for at in each for text in (_format_cell(at, "value"), ms.report.mean_with_range(at.lost, ".2f"))
            ]
            rows.append([str(kind), str(role), *cells])
        carried = [
            ms.report.mean_with_range(values.carried.sel(kind=kind, skill=skill), ".2f")
            for skill in values.skill.values
        ]
        rows.append([str(kind), "all together", *(text for cell in carried for text in (cell, cell))])
    return rows


def _interaction_rows(values: xr.Dataset) -> list[list[str]]:
    import numpy as np

    rows = []
    for kind in values.kind.values:
        pairs = list(combinations(values.role.values.tolist(), 2))
        of_pairs = [values.sel(kind=kind, role=one, other=other) for one, other in pairs]
        sizes = [-float(abs(of.interaction.mean("seed")).max()) for of in of_pairs]
        for i in np.argsort(sizes, kind="stable")[:MOST]:
            cells = [_format_cell(of_pairs[i].sel(skill=skill), "interaction") for skill in values.skill.values]
            rows.append([str(kind), " and ".join(pairs[i]), *cells])
    return rows


def _format_cell(at: xr.Dataset, name: str) -> str:
    """Mean [range] over seeds; for one seed its interval."""
    if at.sizes["seed"] > 1 or bool(at[name].isnull().all()):
        return ms.report.mean_with_range(at[name], ".2f")
    before = "" if name == "value" else f"{name}_"
    value, low, high = (float(at[column].isel(seed=0)) for column in (name, f"{before}low", f"{before}high"))
    return ms.report.interval(value, low, high, ".2f", n=1, each=at[name])


def agreement_tables(found: xr.Dataset) -> list[ms.report.Table]:
    """In how many seeds removal and value agree on a part and a skill, and why they do not; and on pairs of skills."""
    from mnemoscope.report.ablation import outcome_table, state_rows

    states = ("agrees", "disagrees", "undecided")
    rows = state_rows(found, means=("lost_share", "value_share"), state="agreement", states=states)
    counts = ("agree", "disagree", "undecided", "why they disagree: seeds")
    agreement = ms.report.Table(
        name="agreement",
        title=f"removal and value, as shares of what all parts carry in accuracy, margin {found.attrs['margin']:g}",
        header=("missing parts", "part", "skill", "lost alone", "value", *counts),
        rows=[[*row, _disagreement_reasons(at)] for row, at in rows],
        n_text=3,
    )
    outcomes = {"by removal: seeds": "removal_outcome", "by value: seeds": "value_outcome"}
    title = "dissociation of skills by removal and by value"
    return [agreement, outcome_table(found, title, outcomes, kinds="missing parts")]


def _disagreement_reasons(at: xr.Dataset) -> str:
    from mnemoscope.report.ablation import count_words

    pairs = zip(at.reason.values.tolist(), at.partner.values.tolist(), strict=True)
    return count_words(f"{reason} with {partner}" if partner else reason for reason, partner in pairs if reason)


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Values of parts and a heatmap of their interactions, by every metric."""
    values = measured.results["shapley"]
    dots, mean = ("; dots are seeds, bars their mean", ", mean over seeds") if values.sizes["seed"] > 1 else ("", "")
    found = []
    for metric in map(str, values.metric.values):
        caption = f"{metric}: value of a part, and what is lost without it alone{dots}."
        found.append((caption, value_figure(values, metric)))
        found.append((f"{metric}: interactions of parts{mean}.", interaction_figure(values, metric)))
    return found


def value_figure(values: xr.Dataset, metric: str) -> Any:
    """Values, and the loss without each part alone: bars are means, dots are seeds; one panel per skill and kind."""
    from plotly.subplots import make_subplots

    kinds, skills, roles = ([str(name) for name in values[dim].values] for dim in ("kind", "skill", "role"))
    titles = [skill if len(kinds) == 1 else f"{skill}, {kind}" for kind in kinds for skill in skills]
    figure = make_subplots(len(kinds), len(skills), subplot_titles=titles, shared_yaxes=True)
    for place, (kind, skill) in enumerate((kind, skill) for kind in kinds for skill in skills):
        row, column = divmod(place, len(skills))
        for side, (name, words), colour in zip((-1, 1), _BARS.items(), ms.report.PALETTE[:2], strict=True):
            cells = values[name].sel(metric=metric, kind=kind, skill=skill).transpose("role", "seed")
            places = [i + 0.2 * side for i in range(len(roles))]
            look = {"name": words, "colour": colour, "width": 0.36, "legend": not place}
            traces = ms.report.bars_with_dots(list(cells), places, **look, labels=roles)
            figure.add_traces(traces, rows=row + 1, cols=column + 1)
    figure.update_yaxes(tickvals=list(range(len(roles))), ticktext=_break_names(roles), range=[len(roles) - 0.5, -0.5])
    unit = f"log-probability ({values.attrs['log_prob_unit']})" if metric == "log_prob" else metric
    figure.update_xaxes(matches="x").update_xaxes(title=unit, row=len(kinds))
    figure.update_layout(**ms.report.LAYOUT, height=120 + len(kinds) * (60 + 44 * len(roles)), barmode="overlay")
    return figure.update_layout(margin={"l": 90, "r": 20, "t": 30, "b": 90})


def interaction_figure(values: xr.Dataset, metric: str) -> Any:
    """A heatmap of interactions, mean over seeds, for each skill and kind; arguments as for `value_figure`."""
    from mnemoscope.report.figures import heatmaps

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
    shown = _break_names(names) if len(names) <= MOST_UPRIGHT else names
    figure.update_xaxes(title="", showticklabels=False, tickvals=names, ticktext=shown)
    return figure.update_xaxes(showticklabels=True, row=len(panels))


def _break_names(names: Iterable[str]) -> list[str]:
    return [name.replace(" ", "<br>", 1) for name in names]


def finding(measured: MeasuredRuns) -> str:
    """The part with the largest Shapley value of every skill, and its share of the whole."""
    from mnemoscope.report.findings import largest

    values = measured.results["shapley"]
    metric = "accuracy" if "accuracy" in values.metric else values.metric.values[0]
    kind, found = values.kind.values[0], []
    for skill in map(str, values.skill.values):
        at = values.sel(skill=skill, metric=metric, kind=kind)
        top = largest(at.value)
        if top is not None:
            whole, part = ms.report.mean_with_range(at.carried, ".2f"), top.place["role"].removeprefix("the ")
            found.append(f"{skill}: the {part} ({ms.report.mean_with_range(top.values, '.2f')} of {whole})")
    return f"The part with the largest Shapley value, in {metric}, {kind} ablation: {'; '.join(found)}."


def notes(measured: MeasuredRuns) -> Sequence[str]:
    """A note on the comparison of removal and value, where there is one."""
    return (COMPARED,) if "agreement" in measured.results else ()


register_module(__name__, Shapley, source="Shapley 1953 (values), Grabisch and Roubens 1999 (interactions)")
