"""The page: runs by task and configuration, then pages, arrays and tables, with a filter and columns to sort by."""

import math
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files as package_files
from pathlib import Path

from mnemoscope.core.errors import InputError
from mnemoscope.models.glance import Glance, glance
from mnemoscope.report.figures import COLOURS, colours_of
from mnemoscope.report.overview.files import File, beside, link, relative, under
from mnemoscope.report.overview.groups import LOSSES, Group, grouped, mean_and_range, measures, number
from mnemoscope.report.overview.sparklines import Axes, Curve, axes_of, sparkline
from mnemoscope.report.page import Page, title_of
from mnemoscope.report.tables import counted

NAME = "index.html"
TITLE = "Runs and results in "
"""The title of such a page starts with this."""


def check_place(out: Path) -> None:
    """Refuse to write over a page of another kind."""
    if out.exists() and not (title_of(out) or "").startswith(TITLE):
        raise InputError(f"{out} is there and no such overview; name another file with --out, or remove it")


def overview_page(directory: Path, out: Path, *, around: bool = True) -> Page:
    """The runs and results at or below a directory, and next to it with `around`; links are relative to `out`."""
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory; name one that holds runs or results")
    (runs, unreadable), start = glance(directory, checked=True), out.absolute().parent
    labels = dict.fromkeys(run.label for run in runs)
    files = [*under(directory, labels), *(beside(directory, labels) if around else [])]
    files = [file for file in files if file.path.resolve() != out.resolve()]
    page = Page(f"{TITLE}{directory.resolve().name}", _lead(runs, files), style=_part("overview.css"))
    if runs:
        page.text(_EXPLAINED)
    if runs or files:
        page.block(_CONTROLS)
    else:
        page.text("Nothing is here yet: mnemoscope train leaves runs, other commands leave pages, arrays and tables.")
    for task in dict.fromkeys(run.spec.task.name for run in runs):
        _runs_section(page, task, [run for run in runs if run.spec.task.name == task], files, start)
    if unreadable:
        page.section("Runs that cannot be read")
        rows = [[_link(path, start), _text(why)] for path, why in unreadable.items()]
        page.block(_table(("directory", "why"), rows, n_text=2))
    _files_section(page, files, start)
    page.block(f"<script>{_part('overview.js')}</script>")
    return page


def _lead(runs: Sequence[Glance], files: Sequence[File]) -> str:
    training, open_ends = sum(run.training for run in runs), sum(not run.finished for run in runs)
    now = f" ({training} training now)" if training else ""
    parts = [counted(len(runs), "run") + (f", {open_ends} of them not finished{now}" if open_ends else "")]
    parts += [f"{counted(n, kind)}" for kind in ("page", "array", "table") if (n := sum(f.kind == kind for f in files))]
    return ", ".join(parts) + "."


_EXPLAINED = (
    "A line stands for a configuration, with mean and range over the seeds whose training has ended; its button shows "
    "them one by one. Values are the last that were logged, on the prompts that training was watched on."
)
_CONTROLS = (
    '<div class="controls"><input id="filter" type="search" placeholder="filter: preset, change, seed=3, interrupted" '
    'aria-label="filter"><label><input id="every" type="checkbox"> every seed</label><output id="count"></output></div>'
)


# ---- runs


def _runs_section(page: Page, task: str, runs: Sequence[Glance], files: Sequence[File], start: Path) -> None:
    page.section(task.replace("-", " ").replace("_", " ").capitalize())
    skills = measures(runs)
    colours = {column: (f"test_{column}", colour) for column, colour in colours_of(skills).items()}
    shown = {**LOSSES, **skills}
    longest = max(run.last_step for run in runs)
    progress = [run.progress for run in runs]
    losses = {"train_loss": COLOURS["train"], "test_loss": COLOURS["test"]}
    rates = {skills[column]: colour for column, (_, colour) in colours.items()}
    panels = {"losses": (losses, axes_of(progress, list(losses), longest))}
    if rates:
        of_skills = not any(name.startswith("test_loss") for name in rates)
        axes = Axes(n_steps=longest, low=0, high=1) if of_skills else axes_of(progress, list(rates), longest)
        panels["accuracies" if of_skills else "losses of the parts"] = (rates, axes)
    axes = panels["losses"][1]
    page.text(f"Axes of the curves: steps to {longest}, losses from {axes.low:.3g} to {axes.high:.3g}.", "lead")
    names = ["preset", "recipe", "changed", "seed", "state", "step", *shown, *panels, "results"]
    keys = {column: colour for column, (_, colour) in colours.items()} | {
        column: losses[measure] for column, measure in LOSSES.items()
    }
    bodies = []
    for group in grouped(runs):
        of_group = [file for file in files if file.label == group.label]
        head = _row(group, group.runs, shown, panels, of_group, start)
        seeds = [_row(group, [run], shown, panels, (), start) for run in group.runs] if len(group.runs) > 1 else []
        words = f"{task} {group.label} {group.changed}".lower()
        bodies.append(f'<tbody data-text="{escape(words)}">{head}{"".join(seeds)}</tbody>')
    page.block(f'<div class="scroll"><table class="runs">{_head(names, 5, keys)}{"".join(bodies)}</table></div>')


def _row(
    group: Group,
    runs: Sequence[Glance],
    shown: dict[str, str],
    panels: dict[str, tuple[dict[str, str], Axes]],
    files: Sequence[File],
    start: Path,
) -> str:
    several, first = len(runs) > 1, runs[0]
    spec = first.spec
    single = Group(runs=runs, changed=group.changed)
    seeds = escape(single.seeds)
    if several:
        seeds = f'<button class="open" aria-expanded="false">{counted(len(runs), "seed")}: {seeds}</button>'
    else:
        seeds = f'<a href="{link(first.path, start)}/">{seeds}</a>'
    state, why = single.states, "; ".join(run.problem for run in runs if run.problem)
    kind = "" if all(run.finished and not run.problem for run in runs) else ' class="open-end"'
    cells = [_text(spec.preset), _text(spec.recipe.name), f'<td class="text changed">{escape(group.changed)}</td>']
    cells += [f'<td class="text" data-value="{first.seed}">{seeds}</td>']
    cells += [f'<td class="text"><span{kind} title="{escape(why)}">{escape(state)}</span></td>', _step(runs)]
    cells += [_value(single.last(measure)) for measure in shown.values()]
    cells += [f"<td>{_spark(name, runs, *panel)}</td>" for name, panel in panels.items()]
    cells += [_results(files, start)]
    words = " ".join(f"seed={run.seed} {run.state}" for run in runs)
    kind = "of-all" if several else "of-one"
    return f'<tr class="{kind}" data-text="{escape(words)}">{"".join(cells)}</tr>'


def _step(runs: Sequence[Glance]) -> str:
    """The step that was reached, and the planned one if it was not."""
    reached = sorted({run.reached for run in runs})
    text = str(reached[-1]) if len(reached) == 1 else f"{reached[0]}–{reached[-1]}"
    open_ends = {run.last_step for run in runs if not run.finished}
    if open_ends:
        text += f"<small>of {max(open_ends)}</small>"
    return f'<td data-value="{reached[-1]}">{text}</td>'


def _value(values: Sequence[float]) -> str:
    mean, spread = mean_and_range(values)
    below = f"<small>{spread}</small>" if spread else ""
    key = "" if mean is None or not math.isfinite(mean) else repr(mean)
    return f'<td data-value="{key}">{number(mean)}{below}</td>'


def _spark(name: str, runs: Sequence[Glance], measures: dict[str, str], axes: Axes) -> str:
    curves = []
    for measure, colour in measures.items():
        logged = [run for run in runs if measure in run.progress]
        steps, values = [r.progress["step"] for r in logged], [r.progress[measure] for r in logged]
        if logged:
            curves.append(Curve(colour=colour, steps=steps, values=values, stays=[r.finished for r in logged]))
    last = ", ".join(f"{m.removeprefix('test_')} {number(mean_and_range(_ends(runs, m))[0])}" for m in measures)
    return sparkline(curves, axes, f"{name} over training; at the end {last}")


def _ends(runs: Sequence[Glance], measure: str) -> list[float]:
    return [value for run in runs if (value := run.last(measure)) is not None]


def _results(files: Sequence[File], start: Path) -> str:
    """Links to the pages about a configuration, and how many arrays and tables there are besides."""
    pages = [file for file in files if file.kind == "page"]
    links = [f'<a href="{link(f.path, start)}" title="{escape(f.title)}">{_shown(f.path.stem)}</a>' for f in pages]
    others = [f"{counted(n, kind)}" for kind in ("array", "table") if (n := sum(f.kind == kind for f in files))]
    below = f"<small>{', '.join(others)}</small>" if others else ""
    return f'<td class="text">{" ".join(links)}{below}</td>'


# ---- files


def _files_section(page: Page, files: Sequence[File], start: Path) -> None:
    """Pages first, then arrays and tables, which may be many."""
    pages = [file for file in files if file.kind == "page"]
    data = [file for file in files if file.kind != "page"]
    if pages:
        page.section("Pages")
        rows = [[_link(file.path, start, file.title), _path(file, start), _text(file.label)] for file in pages]
        page.block(_table(("page", "file", "configuration"), rows, n_text=3))
    if data:
        page.section("Arrays and tables")
        rows = [[_link(file.path, start), _text(file.kind), _text(file.label)] for file in data]
        page.block(_table(("file", "kind", "configuration"), rows, n_text=3))


def _path(file: File, start: Path) -> str:
    return _text(relative(file.path, start))


def _link(path: Path, start: Path, title: str = "") -> str:
    return f'<td class="text"><a href="{link(path, start)}">{_shown(title or relative(path, start))}</a></td>'


# ---- pieces


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, n_text: int) -> str:
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f'<div class="scroll"><table class="files">{_head(header, n_text, {})}<tbody>{body}</tbody></table></div>'


def _head(names: Sequence[str], n_text: int, keys: dict[str, str]) -> str:
    """Columns to sort by; those with a curve have its colour."""
    cells = []
    for i, name in enumerate(names):
        kind = ' class="text"' if i < n_text or name == "results" else ""
        key = f'<i style="background:{keys[name]}"></i>' if name in keys else ""
        cells.append(f"<th{kind}>{key}<button>{escape(name)}</button></th>")
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _text(text: str) -> str:
    return f'<td class="text">{_shown(text)}</td>'


def _shown(text: str) -> str:
    """Text as HTML; bytes of a file name that are no UTF-8 are replaced."""
    return escape(os.fsencode(text).decode(errors="replace"))


def _part(name: str) -> str:
    return (package_files("mnemoscope.report.overview") / name).read_text()
