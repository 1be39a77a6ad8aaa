"""Two models, or two configurations, beside each other: tables, figures and their page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core.presets import differing_fields, value_text
from mnemoscope.core.protocols import Task, class_names
from mnemoscope.core.specification import RunSpec
from mnemoscope.report.figures import LAYOUT, PALETTE, bars_with_dots, break_names
from mnemoscope.report.findings import LEAST
from mnemoscope.report.guesses import output_symbols, token_symbols
from mnemoscope.report.page import TEMPLATES, Page, attention_view
from mnemoscope.report.tables import Table, format_rounded, mean_with_range, pluralise

N_PLACES = 12
"""Number of listed places where two models differ most."""
N_BEFORE = 24
"""Tokens that are shown before such a place."""
Names = tuple[str, str]
"""Names of the first and of the second side."""


# ---- tables


def specification_table(one: RunSpec, other: RunSpec, names: Names, beside: Mapping[str, tuple[Any, Any]]) -> Table:
    """The fields in which two specifications (of any seed) differ, and other differences (`beside`), such as steps."""
    found = {**beside, **differing_fields(one, other)}
    rows = [[field, value_text(ours), value_text(theirs)] for field, (ours, theirs) in found.items() if ours != theirs]
    title = "what differs in the specification" if rows else "the specifications are the same"
    return Table(name="specification", title=title, header=("field", *names), rows=rows, n_text=3)


def skill_table(one: xr.Dataset, other: xr.Dataset, change: xr.Dataset, names: Names, *, sequences: str) -> Table:
    """Accuracy and loss of each skill, from `skill_scores` along seed, and the differences over (summary, skill)."""
    rows = [
        [
            _readable_name(measure),
            _readable_name(skill),
            *_cells(skill, "skill", one[measure], other[measure], change[measure]),
        ]
        for measure in ("accuracy", "loss")
        if measure in change
        for skill in change.skill.values.tolist()
    ]
    title = f"skills, {sequences}; {_explain_change(change)}; loss: {one.attrs['loss_unit']}"
    return Table(name="skills", title=title, header=("measure", "skill", *names, "difference"), rows=rows, n_text=2)


def ablation_table(one: xr.DataArray, other: xr.DataArray, change: xr.DataArray, names: Names, *, what: str) -> Table:
    """Loss of each skill without a part, over (seed, kind, role, skill); the two sides may have different roles.

    `change` is their difference over (summary, kind, role, skill); `what` names the quantity that is lost.
    """
    rows = []
    for kind, role, skill in product(*(change[dim].values.tolist() for dim in ("kind", "role", "skill"))):
        cells = _cells(role, "role", *(each.sel(kind=kind, skill=skill) for each in (one, other, change)))
        rows.append([kind, role, _readable_name(skill), *cells])
    header = ("ablation", "removed", "skill", *names, "difference")
    title = f"{what} without one part, heads by role; {_explain_change(change)}; a dash: there is no such part"
    return Table(name="ablation", title=title, header=header, rows=rows, n_text=3)


def _cells(label: Any, dim: str, one: xr.DataArray, other: xr.DataArray, change: xr.DataArray) -> list[str]:
    cells = [mean_with_range(x.sel({dim: label}), ".3f") if label in x[dim].values else "–" for x in (one, other)]
    return [*cells, change_text(change.sel({dim: label}))]


def change_text(values: xr.DataArray) -> str:
    """A difference with its interval, where it has one; a dash where there is none."""
    mean, low, high = (float(values.sel(summary=name)) for name in ("mean", "low", "high"))
    if math.isnan(mean):
        return "–"
    interval = "" if math.isnan(low) else f" [{format_rounded(low, '+.3f')}, {format_rounded(high, '+.3f')}]"
    return format_rounded(mean, "+.3f") + interval


def _explain_change(change: xr.Dataset | xr.DataArray) -> str:
    if paired := change.attrs["paired"]:
        over = f"its mean over the {paired} seeds that both have, in pairs [95 % interval]"
    elif change.attrs["interval"]:
        over = "seeds are not paired [95 % interval]"
    else:
        return "difference: second minus first"
    return f"mean [range] over seeds; difference: second minus first, {over}"


def agreement_table(found: xr.Dataset, names: Names, title: str) -> Table:
    """For every skill: the share of places at which both are right, one of them, or neither."""
    called = {"first only": f"{names[0]} only", "second only": f"{names[1]} only"}
    outcomes = found.outcome.values.tolist()
    rows = [
        [
            _readable_name(skill),
            *(format_rounded(float(found.share.sel(skill=skill, outcome=outcome)), ".3f") for outcome in outcomes),
            format_rounded(float(found.same_guess.sel(skill=skill)), ".3f"),
        ]
        for skill in found.skill.values.tolist()
    ]
    header = ("skill", *(called.get(outcome) or outcome for outcome in outcomes), "same guess")
    return Table(name="agreement", title=f"who is right, {title}; share of the places", header=header, rows=rows)


def places_table(found: xr.Dataset, task: Task, names: Names, title: str) -> Table:
    """The places at which the probabilities of the answer differ most, one of a sequence."""
    symbols, outputs = token_symbols(task), output_symbols(task)
    apart = abs(found.p_answer.diff("model")).squeeze("model").fillna(0).values
    ranked = (-apart.max(1)).argsort(kind="stable")[:N_PLACES]
    rows = []
    for example in ranked[apart.max(1)[ranked] > 0].tolist():
        pos = int(apart[example].argmax())
        at, end = found.isel(example=example, pos=pos), None if class_names(task) else pos + 1
        tokens = [symbols[token] for token in found.token.isel(example=example).values[:end].tolist()]
        text = " ".join(["…"] * (len(tokens) > N_BEFORE) + tokens[-N_BEFORE:])
        guesses = [f"{outputs[int(at.guess[i])]} {float(at.p_guess[i]):.2f}" for i in range(2)]
        rows.append(
            [text, outputs[int(at.answer)], *guesses, *(format_rounded(float(at.p_answer[i]), ".3f") for i in range(2))]
        )
    header = ("sequence", "answer", *(f"{name}: guess" for name in names), *(f"{name}: p(answer)" for name in names))
    title = f"where the two differ most, {title}" if rows else f"the two nowhere differ, {title}"
    return Table(name="places", title=title, header=header, rows=rows, n_text=4)


# ---- the finding


def describe_comparison(change: xr.Dataset, gates: Sequence[xr.Dataset], names: Names) -> str:
    """Sentences on the skills in which the two differ, and on those that each has learned.

    `change` is the difference of `skill_scores` over (summary, skill), `gates` are of `analyses.gate` along seed. A
    skill differs if its mean difference is `LEAST` or more, with an interval that leaves out 0 where there is one.
    """
    measure = "accuracy" if "accuracy" in change else "loss"
    seeds = _count_seeds(change.attrs["paired"], [gate.sizes["seed"] for gate in gates])
    said, alike = [], []
    for skill in change.skill.values.tolist():
        mean, low, high = (float(change[measure].sel(skill=skill, summary=end)) for end in ("mean", "low", "high"))
        if abs(mean) >= LEAST and not low <= 0 <= high:
            text = change_text(change[measure].sel(skill=skill))
            said.append(f"{text} at {_readable_name(skill)}")
        elif not math.isnan(mean):
            alike.append(_readable_name(skill))
    sentences = [f"{names[1]} against {names[0]}: {measure} {', '.join(said)} ({seeds})."] if said else []
    if alike:
        where = "" if said else f" ({seeds})"
        sentences.append(f"No difference of {LEAST:g} or more is established at {' and '.join(alike)}{where}.")
    learned = [_describe_learned(name, gate) for name, gate in zip(names, gates, strict=True)]
    sentences.append(f"Learned, better than a constant guess and the exact baselines: {'; '.join(learned)}.")
    if not any(bool(gate.learned.any()) for gate in gates):
        sentences.append("So these numbers do not tell how the task is done.")
    return " ".join(sentences)


def _count_seeds(paired: int, sizes: Sequence[int]) -> str:
    if paired:
        return f"mean over {pluralise(paired, 'seed')} that both have, in pairs"
    return "one seed each" if set(sizes) == {1} else f"means over {sizes[0]} and {pluralise(sizes[1], 'seed')}"


def _describe_learned(name: str, gate: xr.Dataset) -> str:
    n = gate.sizes["seed"]
    counts = {_readable_name(skill): int(gate.learned.sel(skill=skill).sum()) for skill in gate.skill.values}
    if not any(counts.values()):
        return f"{name} nothing in {pluralise(n, 'seed')}"
    each = (f"{skill} in {count or 'none'} of {pluralise(n, 'seed')}" for skill, count in counts.items())
    return f"{name} {', '.join(each)}"


# ---- figures


def skill_figure(one: xr.Dataset, other: xr.Dataset, names: Names) -> go.Figure:
    """A bar for each skill and each of the two, with a dot per seed: accuracy, or the squared error."""
    measure = "accuracy" if "accuracy" in one and "accuracy" in other else "loss"
    figure = go.Figure()
    skills = list(dict.fromkeys([*one.skill.values.tolist(), *other.skill.values.tolist()]))
    _add_bars(figure, [x[measure] for x in (one, other)], "skill", skills, names, legend=True)
    figure.update_yaxes(title=measure)
    figure.update_xaxes(tickvals=list(range(len(skills))), ticktext=[_readable_name(skill) for skill in skills])
    return figure.update_layout(**LAYOUT, height=320)


def ablation_figure(
    one: xr.DataArray, other: xr.DataArray, change: xr.DataArray, names: Names, *, what: str
) -> go.Figure:
    """The losses of `ablation_table` under the first kind of ablation, one panel for each skill."""
    skills, roles = change.skill.values.tolist(), change.role.values.tolist()
    kind = one.kind.values[0]
    figure = make_subplots(len(skills), 1, subplot_titles=[_readable_name(s) for s in skills], shared_xaxes=True)
    for row, skill in enumerate(skills, 1):
        cells = [x.sel(kind=kind, skill=skill) for x in (one, other)]
        _add_bars(figure, cells, "role", roles, names, legend=row == 1, row=row)
    figure.update_xaxes(tickvals=list(range(len(roles))), ticktext=break_names(roles), row=len(skills), col=1)
    figure.update_yaxes(title=what)
    return figure.update_layout(**LAYOUT, height=130 + 220 * len(skills))


def _add_bars(
    figure: go.Figure,
    arrays: Sequence[xr.DataArray],
    dim: str,
    labels: Sequence[str],
    names: Names,
    *,
    legend: bool,
    row: int | None = None,
) -> None:
    for i, (array, name) in enumerate(zip(arrays, names, strict=True)):
        there = {place: label for place, label in enumerate(labels) if label in array[dim].values}
        cells = [array.sel({dim: label}) for label in there.values()]
        places = [place + 0.36 * (i - 0.5) for place in there]
        traces = bars_with_dots(cells, places, name=name, colour=PALETTE[i], width=0.34, legend=legend)
        if row is None:
            figure.add_traces(traces)
        else:
            figure.add_traces(traces, rows=row, cols=1)


def _readable_name(name: str) -> str:
    return str(name).replace("_", " ")


# ---- the page


@dataclass(frozen=True, kw_only=True)
class SequenceComparison:
    """The results of two models on one sequence, each with the label of the first and of the second."""

    title: str
    patterns: Sequence[xr.Dataset]
    """As `attention_view` takes them."""
    roles: Sequence[Mapping[str, str]]
    predictions: Sequence[go.Figure]
    """Empty for vectors."""
    caption: str
    """The caption under the predictions."""


@dataclass(frozen=True, kw_only=True)
class ComparisonContent:
    """The content of the page."""

    title: str
    lead: str
    finding: str
    """The differences and the learned skills, in sentences."""
    notes: Sequence[str]
    names: Names
    specification: Table
    skills: Table
    skill_figure: go.Figure
    places: Sequence[Table]
    """The places where predictions differ; empty for vectors."""
    sequence: SequenceComparison
    ablation: Table | None
    """None where parts cannot be removed."""
    ablation_figure: go.Figure | None

    @property
    def tables(self) -> list[Table]:
        """All tables of the page."""
        return [self.specification, self.skills, *self.places, *([self.ablation] if self.ablation else [])]


def comparison_page(shown: ComparisonContent) -> Page:
    """Differences, skills, predictions, attention beside each other, and the loss without each part."""
    page = Page(shown.title, shown.lead)
    page.write(f"{TEMPLATES}comparison.html.jinja", shown=shown, show_attention=_show_attention)
    return page


def _show_attention(page: Page, patterns: xr.Dataset, roles: Mapping[str, str]) -> str:
    """Heads under names that are short enough for the view, H1 and so on, in the order of the roles."""
    short = {head: f"H{i}" for i, head in enumerate(roles, 1)}
    caption = ", ".join(f"{short[head]}: {role} ({head})" for head, role in roles.items())
    return attention_view(page, patterns, caption, short)
