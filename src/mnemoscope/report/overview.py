"""The overview of a directory: runs by task and configuration, then pages, arrays and tables, with a filter.

`overview.js` filters and sorts. Learning curves are inline SVG, a kilobyte each, since a page shows hundreds at once.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from mnemoscope.core.errors import InputError
from mnemoscope.core.html import macros
from mnemoscope.core.presets import changes_text
from mnemoscope.models.glance import RunSummary, summarise_runs
from mnemoscope.report.figures import COLOURS, assign_colours
from mnemoscope.report.page import TEMPLATES, Page, read_source, title_of
from mnemoscope.report.tables import format_ranges, format_rounded, pluralise

NAME = "index.html"
TITLE = "Runs and results in "
"""The title of such a page starts with this."""
LOSSES = {"loss, training": "train_loss", "loss, unseen": "test_loss"}
"""Measure by column."""
KINDS = {".html": "page", ".nc": "array", ".csv": "table"}
WIDTH, HEIGHT = 100, 32
"""Pixels of a learning curve."""
POINTS = 48
"""Most points of a line."""


# ---- the page


def check_place(out: Path) -> None:
    """Refuse to write over a page of another kind."""
    if out.exists() and not (title_of(out) or "").startswith(TITLE):
        raise InputError(f"{out} is there and no such overview; name another file with --out, or remove it")


def overview_page(directory: Path, out: Path, *, around: bool = True) -> Page:
    """The runs and results at or below a directory, and next to it with `around`; links are relative to `out`."""
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory; name one that holds runs or results")
    (runs, unreadable), start = summarise_runs(directory, checked=True), out.absolute().parent
    labels = dict.fromkeys(run.label for run in runs)
    files = [*files_below(directory, labels), *(files_beside(directory, labels) if around else [])]
    files = [file for file in files if file.path.resolve() != out.resolve()]
    by_task = {task: [run for run in runs if run.spec.task.name == task] for task in (r.spec.task.name for r in runs)}
    page = Page(f"{TITLE}{directory.resolve().name}", _lead(runs, files), kind="overview-page")
    page.write(
        f"{TEMPLATES}overview.html.jinja",
        sections=[_runs_section(task, members, files, start) for task, members in by_task.items()],
        unreadable=[(_address(path, start), why) for path, why in unreadable.items()],
        pages=[(_address(file.path, start), file) for file in files if file.kind == "page"],
        data=[(_address(file.path, start), file) for file in files if file.kind != "page"],
        printable=printable,
        sparkline=sparkline,
        script=Markup(read_source("overview.js")),
    )
    return page


def _lead(runs: Sequence[RunSummary], files: Sequence["ResultFile"]) -> str:
    training, open_ends = sum(run.training for run in runs), sum(not run.finished for run in runs)
    now = f" ({training} training now)" if training else ""
    parts = [pluralise(len(runs), "run") + (f", {open_ends} of them not finished{now}" if open_ends else "")]
    parts += [
        f"{pluralise(n, kind)}" for kind in ("page", "array", "table") if (n := sum(f.kind == kind for f in files))
    ]
    return ", ".join(parts) + "."


def _runs_section(task: str, runs: Sequence[RunSummary], files: Sequence["ResultFile"], start: Path) -> dict[str, Any]:
    """The table of the runs of one task: columns, the colours of those with a curve, and rows by configuration."""
    skills = overview_measures(runs)
    colours = assign_colours(skills)
    shown = {**LOSSES, **skills}
    longest = max(run.last_step for run in runs)
    progress = [run.progress for run in runs]
    losses = {"train_loss": COLOURS["train"], "test_loss": COLOURS["test"]}
    panels = {"losses": (losses, common_axes(progress, list(losses), longest))}
    if rates := {skills[column]: colour for column, colour in colours.items()}:
        of_skills = not any(name.startswith("test_loss") for name in rates)
        axes = (
            SparklineAxes(n_steps=longest, low=0, high=1) if of_skills else common_axes(progress, list(rates), longest)
        )
        panels["accuracies" if of_skills else "losses of the parts"] = (rates, axes)
    axes = panels["losses"][1]
    groups = []
    for group in group_runs(runs):
        rows = [_row(group, shown, panels, [file for file in files if file.label == group.label], start)]
        if len(group.runs) > 1:
            rows += [_row(RunGroup(runs=[run], changed=group.changed), shown, panels, (), start) for run in group.runs]
        groups.append((f"{task} {group.label} {group.changed}".lower(), rows))
    return {
        "title": task.replace("-", " ").replace("_", " ").capitalize(),
        "axes": f"Axes of the curves: steps to {longest}, losses from {axes.low:.3g} to {axes.high:.3g}.",
        "columns": ["preset", "recipe", "changed", "seed", "state", "step", *shown, *panels, "results"],
        "colours": {**colours, **{column: losses[measure] for column, measure in LOSSES.items()}},
        "groups": groups,
    }


def _row(
    group: "RunGroup",
    shown: Mapping[str, str],
    panels: Mapping[str, tuple[Mapping[str, str], "SparklineAxes"]],
    files: Sequence["ResultFile"],
    start: Path,
) -> dict[str, Any]:
    """A configuration, or one seed of it."""
    runs, first = group.runs, group.runs[0]
    return {
        "several": pluralise(len(runs), "seed") if len(runs) > 1 else "",
        "words": " ".join(f"seed={run.seed} {run.state}" for run in runs),
        "preset": first.spec.preset,
        "recipe": first.spec.recipe.name,
        "changed": group.changed,
        "seed": first.seed,
        "seeds": group.seeds,
        "link": link(first.path, start),
        "ended": all(run.finished and not run.problem for run in runs),
        "state": group.states,
        "why": "; ".join(run.problem for run in runs if run.problem),
        "step": _step(runs),
        "values": [_format_value(group.last(measure)) for measure in shown.values()],
        "curves": [_curves(name, runs, *panel) for name, panel in panels.items()],
        "pages": [(link(file.path, start), file.title, file.path.stem) for file in files if file.kind == "page"],
        "others": ", ".join(
            pluralise(n, kind) for kind in ("array", "table") if (n := sum(file.kind == kind for file in files))
        ),
    }


def _step(runs: Sequence[RunSummary]) -> tuple[int, str, str]:
    """The step that was reached, for sorting and as text, and the planned one if it was not."""
    reached = sorted({run.reached for run in runs})
    text = str(reached[-1]) if len(reached) == 1 else f"{reached[0]}–{reached[-1]}"
    open_ends = {run.last_step for run in runs if not run.finished}
    return reached[-1], text, f"of {max(open_ends)}" if open_ends else ""


def _format_value(values: Sequence[float]) -> tuple[str, str, str]:
    """Mean over seeds, for sorting and as text, and the range."""
    mean, spread = mean_and_range(values)
    return "" if mean is None or not math.isfinite(mean) else repr(mean), format_number(mean), spread


def _curves(
    name: str, runs: Sequence[RunSummary], colours: Mapping[str, str], axes: "SparklineAxes"
) -> tuple[list["SparklineCurve"], "SparklineAxes", str]:
    """The curves of some measures with their axes and title."""
    curves = []
    for measure, colour in colours.items():
        logged = [run for run in runs if measure in run.progress]
        steps, values = [r.progress["step"] for r in logged], [r.progress[measure] for r in logged]
        if logged:
            curves.append(SparklineCurve(colour=colour, steps=steps, values=values, stays=[r.finished for r in logged]))
    ends = {m: [value for run in runs if (value := run.last(m)) is not None] for m in colours}
    last = ", ".join(f"{m.removeprefix('test_')} {format_number(mean_and_range(each)[0])}" for m, each in ends.items())
    return curves, axes, f"{name} over training; at the end {last}"


def _address(path: Path, start: Path) -> tuple[str, str]:
    return link(path, start), relative_path(path, start)


def printable(text: str) -> str:
    """A text in which bytes of a file name that are no UTF-8 are replaced."""
    return os.fsencode(text).decode(errors="replace")


# ---- runs of one configuration


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that differ in the seed only."""

    runs: Sequence[RunSummary]
    """One run per seed."""
    changed: str
    """Differences from the preset, in words."""

    @property
    def label(self) -> str:
        """Preset and recipe."""
        return self.runs[0].label

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        return format_ranges(run.seed for run in self.runs)

    @property
    def states(self) -> str:
        """The number of runs in each state."""
        states = [run.state for run in self.runs]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        return (
            states[0] if len(counts) == 1 else ", ".join(f"{n}\N{NO-BREAK SPACE}{state}" for state, n in counts.items())
        )

    def last(self, measure: str) -> list[float]:
        """The last values of the runs that have ended; of all if none has."""
        ended = [run for run in self.runs if run.finished] or self.runs
        return [value for run in ended if (value := run.last(measure)) is not None]


def group_runs(runs: Sequence[RunSummary]) -> list[RunGroup]:
    """Runs by configuration, in their order.

    Where a seed of a configuration occurs in several directories, each directory of runs is a separate group; where it
    occurs several times in one directory, so is each of its runs there.
    """
    groups: list[list[RunSummary]] = []
    for run in runs:
        alike = (members for members in groups if _same_configuration(members[0], run))
        members = next(alike, None)
        groups.append([run]) if members is None else members.append(run)
    apart = [part for members in groups for part in _without_repeats(members)]
    return [RunGroup(runs=members, changed=changes_text(members[0].spec)) for members in apart]


def overview_measures(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Measure by column: the accuracy of every skill on unseen sequences, or losses of parts if none was logged."""
    names = list(dict.fromkeys(name for run in runs for name in run.progress))
    skills = [name for name in names if name.startswith("test_") and not name.startswith("test_loss")]
    parts = [name for name in names if name.startswith("test_loss_")]
    prefix = "test_" if skills else "test_loss_"
    return {name.removeprefix(prefix).replace("_", " "): name for name in skills or parts}


def format_number(value: float | None) -> str:
    """A value as text; a dash where there is none."""
    if value is None:
        return "–"
    return (
        format_rounded(value, ".3f" if abs(value) >= 0.01 or value == 0 else ".2g")
        if math.isfinite(value)
        else str(value)
    )


def mean_and_range(values: Sequence[float]) -> tuple[float | None, str]:
    """The mean over seeds, and the range in words, which is empty for a single value."""
    if not values:
        return None, ""
    mean = sum(values) / len(values)
    return mean, f"[{format_number(min(values))}, {format_number(max(values))}]" if len(values) > 1 else ""


def _same_configuration(one: RunSummary, other: RunSummary) -> bool:
    return one.label == other.label and one.spec.replicates(other.spec)


def _without_repeats(members: Sequence[RunSummary]) -> list[list[RunSummary]]:
    if len({run.seed for run in members}) == len(members):
        return [list(members)]
    by_place: dict[object, list[RunSummary]] = {}
    for run in members:
        by_place.setdefault(run.path.parent, []).append(run)
    if len(by_place) == 1:
        return [[run] for run in members]
    return [part for place in by_place.values() for part in _without_repeats(place)]


# ---- files


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """A page, an array or a table."""

    path: Path
    kind: str
    title: str
    """The title of a page; empty for other files."""
    label: str
    """Its configuration; empty where there are several, or none is known."""


def files_below(directory: Path, labels: Iterable[str]) -> list[ResultFile]:
    """The files at or below a directory, by path; hidden folders and run directories are left out.

    A file below a folder with one of the `labels` as its name belongs to that configuration.
    """
    known = set(labels)
    return [_file(path, known) for path in _walk(directory)]


def files_beside(directory: Path, labels: Iterable[str]) -> list[ResultFile]:
    """The files next to a directory: our pages, and what commands have left about one of the configurations."""
    directory, known = directory.resolve(), set(labels)
    folders = [] if directory.parent == directory else _list_directory(directory.parent)
    found = [path for path in folders if path.suffix == ".html" and title_of(path) is not None]
    for folder in folders:
        if folder != directory and not folder.name.startswith("."):
            found += [path for label in sorted(known) if (folder / label).is_dir() for path in _walk(folder / label)]
    return [_file(path, known) for path in found]


def link(path: Path, start: Path) -> str:
    """The address of a file or directory relative to the directory of a page."""
    return quote(os.fsencode(relative_path(path, start)))


def relative_path(path: Path, start: Path) -> str:
    """A path relative to a directory, with slashes."""
    return Path(os.path.relpath(path.absolute(), start.absolute())).as_posix()


def _file(path: Path, labels: set[str]) -> ResultFile:
    kind = KINDS[path.suffix]
    title = title_of(path) or "" if kind == "page" else ""
    label = next((part for part in reversed(path.parts[:-1]) if part in labels), "")
    return ResultFile(path=path, kind=kind, title=title, label=label)


def _walk(directory: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(directory):
        here = Path(place)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not (here / name / "run.json").exists()
        )
        yield from (here / name for name in sorted(names) if Path(name).suffix in KINDS and not name.startswith("."))


def _list_directory(directory: Path) -> Sequence[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


# ---- curves


@dataclass(frozen=True, kw_only=True)
class SparklineAxes:
    """The axes of a curve; curves of one column share the vertical axis."""

    n_steps: int
    low: float
    high: float

    def place(self, step: float, value: float) -> str:
        """A point, in pixels from the upper left corner."""
        height = (value - self.low) / ((self.high - self.low) or 1)
        return f"{WIDTH * step / max(self.n_steps, 1):.1f},{1 + (HEIGHT - 2) * (1 - height):.1f}"


@dataclass(frozen=True, kw_only=True)
class SparklineCurve:
    """Values of one measure at some steps, of one run or several."""

    colour: str
    steps: Sequence[Sequence[float]]
    """Steps of every run."""
    values: Sequence[Sequence[float]]
    """Values of every run, NaN where there is none."""
    stays: Sequence[bool]
    """True for runs that keep their last value, because training has ended."""


def sparkline(curves: Sequence[SparklineCurve], axes: SparklineAxes, title: str) -> str:
    """Lines from the bottom to the top; of several runs the mean so far, in a band from the smallest to the largest."""
    shapes = [shape for curve in curves if (shape := _curve_shape(curve, axes))]
    return macros(f"{TEMPLATES}sparkline.html.jinja").sparkline(shapes, title, WIDTH, HEIGHT) if shapes else ""


def common_axes(
    progress: Sequence[Mapping[str, Sequence[float]]], measures: Sequence[str], n_steps: int
) -> SparklineAxes:
    """Axes that hold all finite values of these measures."""
    values = [v for each in progress for name in measures for v in each.get(name, ()) if math.isfinite(v)]
    return SparklineAxes(n_steps=n_steps, low=min(values, default=0.0), high=max(values, default=1.0))


def _curve_shape(curve: SparklineCurve, axes: SparklineAxes) -> dict[str, str] | None:
    """Colour, points of the line, and those of the band, if there is one; None: there is nothing to draw."""
    steps = np.unique(np.concatenate([np.asarray(each, float) for each in curve.steps]))
    if not len(steps):
        return None
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(POINTS, len(steps))).round().astype(int))]
    rows = np.array(
        [_values_at_steps(chosen, *run) for run in zip(curve.steps, curve.values, curve.stays, strict=True) if run[0]]
    )
    known = np.isfinite(rows).any(0)
    chosen, rows = chosen[known], np.where(np.isfinite(rows), rows, np.nan)[:, known]
    if not len(chosen):
        return None
    line, above, below = (
        list(map(axes.place, chosen, values))
        for values in (np.nanmean(rows, 0), np.nanmax(rows, 0), np.nanmin(rows, 0))
    )
    band = " ".join([*above, *reversed(below)]) if len(rows) > 1 else ""
    return {"colour": curve.colour, "line": " ".join(line), "band": band}


def _values_at_steps(chosen: np.ndarray, steps: Sequence[float], values: Sequence[float], stays: bool) -> np.ndarray:
    """The last value up to every chosen step; NaN behind the end of a run that may go on."""
    place = np.searchsorted(np.asarray(steps, float), chosen, side="right") - 1
    found = np.where(place >= 0, np.asarray(values, float)[place], np.nan)
    return found if stays else np.where(chosen <= steps[-1], found, np.nan)
