"""Effects of removed, replaced and patched parts: tables, bars and heatmaps; dissociation of skills."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core import positions
from mnemoscope.report.figures import LAYOUT, add_marks, assign_colours, bars_with_dots, break_names, heatmaps
from mnemoscope.report.tables import Table, mean_with_range

MOST = 16
"""Largest number of parts in a figure."""


@dataclass(frozen=True, kw_only=True)
class AblationQuantity:
    """The quantity by which an ablation is read."""

    name: str
    title: str
    change: str
    sign: int
    """The sign of a change that is damage."""


ACCURACY = AblationQuantity(name="accuracy", title="accuracy", change="accuracy lost", sign=-1)
LOSS = AblationQuantity(name="loss", title="squared error", change="rise of the squared error", sign=1)


def ablation_quantity(ablation: xr.Dataset) -> AblationQuantity:
    """Accuracy, or the squared error where answers are vectors."""
    return ACCURACY if "accuracy" in ablation else LOSS


def damage(ablation: xr.Dataset) -> xr.DataArray:
    """Accuracy lost, or the rise of the squared error."""
    measure = ablation_quantity(ablation)
    return measure.sign * (ablation[measure.name] - ablation[f"clean_{measure.name}"])


def ablation_header(ablation: xr.Dataset) -> Sequence[str]:
    """Column names of `ablation_rows`."""
    return ("removed", *(f"{skill}, {kind}" for kind in ablation.kind.values for skill in ablation.skill.values))


def ablation_rows(ablation: xr.Dataset) -> list[list[str]]:
    """Accuracy (or squared error) of each skill by kind of ablation: the intact model, then one row per role."""
    name = ablation_quantity(ablation).name
    cells = [(kind, skill) for kind in ablation.kind.values for skill in ablation.skill.values]
    intact = [mean_with_range(ablation[f"clean_{name}"].sel(skill=skill), ".2f") for _, skill in cells]
    rows = [["nothing", *intact]]
    for role in ablation.role.values:
        at = ablation[name].sel(role=role)
        rows.append([str(role), *(mean_with_range(at.sel(kind=kind, skill=skill), ".2f") for kind, skill in cells)])
    return rows


def dissociation_tables(found: xr.Dataset) -> list[Table]:
    """For every kind of ablation: in how many seeds removal costs or spares a skill, or sets two skills apart."""
    states = ("costs", "spares", "undecided")
    costs = Table(
        name="costs",
        title=f"what removal costs, margin {found.attrs['margin']:g}, in seeds",
        header=("ablation", "removed, or pair of skills", "skill", "accuracy lost", *states),
        rows=[row for row, _ in state_rows(found, means=("lost",), state="effect", states=states)],
        n_text=3,
    )
    outcomes = {"dissociation: seeds": "outcome"}
    return [costs, outcome_table(found, "dissociation of skills", outcomes, kinds="ablation")]


def outcome_table(found: xr.Dataset, title: str, outcomes: Mapping[str, str], *, kinds: str) -> Table:
    """The number of seeds with each outcome, for every kind of ablation and pair of skills.

    `found` comes from `dissociation` or `removal_agreement`. `outcomes` gives for every column its variable over
    (skill, other_skill), `kinds` the name of the column with the kind of ablation.
    """
    rows = []
    for kind, (skill, other) in product(found.kind.values, combinations(found.skill.values.tolist(), 2)):
        at = found.sel(kind=kind, skill=skill, other_skill=other)
        counts = [count_words(at[name].values.tolist()) for name in outcomes.values()]
        rows.append([str(kind), f"{skill} and {other}", *counts])
    header = (kinds, "skills", *outcomes)
    return Table(name="dissociation", title=title, header=header, rows=rows, n_text=len(header))


def state_rows(
    found: xr.Dataset, *, means: Sequence[str], state: str, states: Sequence[str]
) -> Iterator[tuple[list[str], xr.Dataset]]:
    """For every kind, role and skill: a row with mean [range] over seeds and the number of seeds in each state.

    The variables `means` are averaged; the variable `state` takes the values `states`, and each has a column. Yields
    the row, and the cells of `found` that it is about.
    """
    for kind, role, skill in product(found.kind.values, found.role.values, found.skill.values):
        at = found.sel(kind=kind, role=role, skill=skill)
        counts = Counter(at[state].values.tolist())
        cells = [mean_with_range(at[name], ".2f") for name in means]
        yield [str(kind), str(role), str(skill), *cells, *(str(counts[name]) for name in states)], at


def count_words(words: Iterable[str]) -> str:
    """The number of occurrences of each word, the most frequent first: `double: 14, single: 2`."""
    return ", ".join(f"{word}: {n}" for word, n in Counter(words).most_common())


def ablation_by_role(ablation: xr.Dataset) -> go.Figure:
    """Accuracy (or squared error) of each skill with one component removed; one dot per seed, a bar at the mean.

    `ablation` is over (seed, kind, role, skill), from `ablate_by_role`. Where there are many components, the figure
    shows those whose removal costs some skill most, and the axis says so.
    """
    measure, n_roles = ablation_quantity(ablation), ablation.sizes["role"]
    if n_roles > MOST:
        costs = damage(ablation).mean("seed").max(("kind", "skill")).fillna(-1)
        ablation = ablation.isel(role=sorted(costs.argsort().values[-MOST:]))
    kinds = [str(kind) for kind in ablation.kind.values]
    figure = make_subplots(1, len(kinds), subplot_titles=[f"{kind} ablation" for kind in kinds], shared_yaxes=True)
    roles, skills = ([str(name) for name in ablation[dim].values] for dim in ("role", "skill"))
    for column, kind in enumerate(kinds, 1):
        for i, (skill, colour) in enumerate(assign_colours(skills).items()):
            shift = 0.34 * (i - (len(skills) - 1) / 2)
            cells = [ablation[f"clean_{measure.name}"].sel(skill=skill)]
            cells += [ablation[measure.name].sel(kind=kind, skill=skill, role=role) for role in roles]
            places = [place + shift for place in range(len(cells))]
            traces = bars_with_dots(cells, places, name=skill, colour=colour, width=0.3, legend=column == 1)
            figure.add_traces(traces, rows=1, cols=column)
        figure.update_xaxes(
            tickvals=list(range(len(roles) + 1)),
            ticktext=break_names(["nothing", *roles], panels=len(kinds)),
            title=f"{MOST} of {n_roles} parts: those whose removal costs most" if n_roles > MOST else None,
            row=1,
            col=column,
        )
    if measure is ACCURACY:
        figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_yaxes(title=measure.title, row=1, col=1)
    return figure.update_layout(**LAYOUT, height=380)


def drop_figure(ablation: xr.Dataset) -> go.Figure:
    """Accuracy lost (or rise of the squared error) without each part, mean over seeds: a heatmap for each kind."""
    kinds = [str(kind) for kind in ablation.kind.values]
    figure = make_subplots(1, len(kinds), subplot_titles=kinds, shared_yaxes=True)
    for column, kind in enumerate(kinds, 1):
        lost = damage(ablation).sel(kind=kind).mean("seed").transpose("role", "skill")
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


WORDS = {"noising": "necessity", "denoising": "sufficiency"}
"""Words for an effect, by direction."""


def patching_table(effects: Mapping[str, xr.Dataset], metric: str, title: str) -> Table:
    """Clean less corrupted (the carried difference), then every cell of the sweep, for each skill and direction.

    `effects` gives for every skill the effects of a patch, along `seed`; all cells are mean [range] over seeds. A
    difference below 0 means that the model answers the other way round.
    """
    columns = {
        f"{skill}, {WORDS[direction]}": ratio.sel(metric=metric).stack(cell=_axes(ratio))
        for skill, direction, ratio in by_direction(effects)
    }
    first = next(iter(columns.values()))
    label, whole = difference_row(effects, metric)
    names = _names(first)
    cells = [(name, [column.isel(cell=i) for column in columns.values()]) for i, name in enumerate(names)]
    rows = [[name, *(mean_with_range(cell, ".2f") for cell in row)] for name, row in [(label, whole), *cells]]
    return Table(name=metric, title=title, header=["patched", *columns], rows=rows)


def difference_row(effects: Mapping[str, xr.Dataset], metric: str) -> tuple[str, list[xr.DataArray]]:
    """Clean less corrupted, the mean over prompts: its label, and a value for each skill and direction."""
    unit = next(iter(effects.values())).unit.sel(metric=metric).item()
    whole = [each.difference.sel(metric=metric).mean("prompt") for each in effects.values() for _ in each.direction]
    return f"clean less corrupted, {unit}", whole


def patching_figure(
    effects: Mapping[str, xr.Dataset], metric: str, audits: Mapping[str, xr.Dataset] | None = None
) -> go.Figure:
    """A heatmap for each skill and direction of `analyses.effects`, mean over seeds; the sweep's last axis runs along
    x. Cells that `audits` by skill confirm in most seeds get a tick, others that are found there a ring.
    """
    panels = {
        f"{skill}: {WORDS[direction]}": _mean(ratio.sel(metric=metric, drop=True)).transpose(*_axes(ratio))
        for skill, direction, ratio in by_direction(effects)
    }
    figure = heatmaps(panels, low=-1, high=1)
    for number, (skill, direction, ratio) in enumerate(by_direction(effects)):
        audit = (audits or {}).get(skill)
        if audit is not None:
            at = audit.sel(direction=direction, metric=metric)
            sure, found = (_mean(at[name]).transpose(*_axes(ratio)).values > 0.5 for name in ("confirmed", "found"))
            add_marks(figure, number, {"✓": sure, "○": found & ~sure})
    return figure


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean("seed") if "seed" in values.dims else values


def by_direction(effects: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, str, xr.DataArray]]:
    """Skill, direction and ratio of every column."""
    for skill, found in effects.items():
        for direction in found.direction.values:
            yield skill, str(direction), found.ratio.sel(direction=direction, drop=True)


def _axes(ratio: xr.DataArray) -> list[str]:
    axes = [str(dim) for dim in ratio.dims if dim not in ("seed", "metric", "direction")]
    return sorted(axes, key=lambda axis: axis in ("pos", "key"))


def _names(column: xr.DataArray) -> list[str]:
    """The names of cells: `memory head pos x5`."""
    axes = [str(axis) for axis in column.indexes["cell"].names]
    labels = zip(*(positions.axis_labels(column, axis) for axis in axes), strict=True)
    words = ["" if axis == "role" else f"{positions.axis_word(axis)} " for axis in axes]
    return [" ".join(word + label for word, label in zip(words, cell, strict=True)) for cell in labels]
