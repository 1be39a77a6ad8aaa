"""What the commands that look at runs show of each task, and the report: one HTML page on any runs.

A task's entry is registered under its name by a module of `viz.reports`. It says what is examined of a run and how
that, an evaluation and a single sequence are shown. A task without an entry gets the plain one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.registry import Registry
from mnemoscope.models.run import Run, by_label
from mnemoscope.viz.page import Page
from mnemoscope.viz.tables import Results, Table

ANY = "any task"
"""The entry for tasks without one of their own."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What commands show of runs of one task; functions of modules, since workers are sent them by name."""

    title: str
    """Of the page."""
    examine: Callable[[Run], dict[str, xr.Dataset]]
    """All that the page and the tables show of a run; `metrics` among it."""
    page: Callable[[Page, Mapping[str, Results]], None]
    """Sections of the page, from what `examine` gives along `seed`, by label."""
    tables: Callable[[Mapping[str, Results]], list[Table]]
    """What was learned, from the same."""
    evaluate: Callable[[Run, int | None], dict[str, xr.Dataset]]
    """What a run is evaluated on, with a number of sequences to draw; none: the task's own choice."""
    evaluation_tables: Callable[[Results], list[Table]]
    """Of one configuration, along `seed`."""
    parse: Callable[[Any, str], Batch]
    """The one sequence of a task that a text says."""
    predict: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """What a model says about one sequence."""
    prediction_tables: Callable[[xr.Dataset], list[Table]]
    prediction_figure: Callable[[xr.Dataset], go.Figure]
    prediction_caption: str
    """Under the figure."""
    patterns: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """The attention of every head on sequences: `pattern` and `token`, as `attention_view` takes them."""
    example: Callable[[Any], Batch]
    """One unseen sequence, for a view."""
    trajectory: Callable[..., xr.Dataset] | None = None
    """Measures of one checkpoint, scalars by name, from a model, its task and `seed`; none: the task has none of its
    own, and `follow` takes those of any task (`analyses.skill_trajectory`)."""


REPORTS: Registry[TaskReport] = Registry("report", "mnemoscope.viz.reports")


def report_of(task: Task) -> TaskReport:
    """The entry of a task, or the plain one."""
    return REPORTS.get(task.name if task.name in REPORTS.names() else ANY)


def examine_run(run: Run) -> dict[str, xr.Dataset]:
    """All that the report shows of a run."""
    return report_of(run.spec.task).examine(run)


def by_report(runs: Sequence[Run]) -> list[tuple[TaskReport, dict[str, list[Run]]]]:
    """Runs by the entry of their task, and within one by label.

    Raises:
        InputError: As `by_label`.
    """
    groups: dict[int, tuple[TaskReport, dict[str, list[Run]]]] = {}
    for label, members in by_label(runs).items():
        found = report_of(members[0].spec.task)
        groups.setdefault(id(found), (found, {}))[1][label] = members
    return list(groups.values())


def report(parts: Sequence[tuple[TaskReport, Mapping[str, Results]]]) -> str:
    """The page.

    Args:
        parts: Entries, and for every label (preset and recipe) of their tasks what `examine` returns for every seed,
            along `seed`.
    """
    results = [result for _, each in parts for result in each.values()]
    n_runs = sum(result["metrics"].sizes["seed"] for result in results)
    several = len(parts) > 1
    page = Page(
        "Trained models" if several else parts[0][0].title,
        f"{len(results)} configurations, {n_runs} trained models. Mean and range are over seeds.",
    )
    for entry, each in parts:
        if several:
            page.part(entry.title)
        entry.page(page, each)
    return page.html()
