"""The report: one HTML page on any runs, made of the entries of their tasks; a task without one gets the plain one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from urllib.parse import quote

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.analyses.baselines import GATE, gate_of_run, of_learned_skills, of_learners
from mnemoscope.analyses.roles import with_roles
from mnemoscope.core import guests
from mnemoscope.core.batch import Batch
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.core.protocols import Task, VectorTask
from mnemoscope.models.run import Run, by_label
from mnemoscope.report.findings import learned
from mnemoscope.report.page import Page
from mnemoscope.report.plain_report import PLAIN, roles
from mnemoscope.report.tables import Results, counted
from mnemoscope.report.task_report import REPORTS, Opening, TaskReport
from mnemoscope.report.vector_report import VECTORS


def report_of(task: Task) -> TaskReport:
    """The entry of a task, or the plain one of its kind; raises InputError where its system cannot be imported as a
    whole.
    """
    known = REPORTS.names()
    guests.require(type(task).__module__)
    if task.name in known:
        return REPORTS.get(task.name)
    entry = VECTORS if isinstance(task, VectorTask) else PLAIN
    return replace(entry, title=task.name.replace("-", " ").replace("_", " ").capitalize())


def analyse_run(run: Run) -> dict[str, xr.Dataset]:
    """All results of a run that the report shows, and whether its model has learned the task."""
    return {**report_of(run.spec.task).analyse(run), GATE: gate_of_run(run)}


def view_of(run: Run, batch: Batch, *, step: int | None = None) -> xr.Dataset:
    """The attention of a run on the first sequence of a batch, for a view, with heads called by their roles.

    Roles are chosen by the last checkpoint; a task without skills, or with prompts of several lengths, has none. Raises
    InputError where there is no checkpoint of that step.
    """
    task = run.spec.task
    shown = report_of(task).patterns(run.hooked(step), task, batch).isel(example=0)
    named = {} if isinstance(task, VectorTask) else roles(run)
    return with_roles(shown, named) if named else shown


def prediction_figure(run: Run, sequence: str, *, step: int | None = None) -> go.Figure:
    """The predictions of a run's model on one sequence, token by token, beside the exact predictor.

    `sequence` is in the task's form, or numbers of tokens; `step` is that of the checkpoint, none: the last. Raises
    InputError where the sequence is refused, or there is no such checkpoint.
    """
    task = run.spec.task
    entry = report_of(task)
    return entry.prediction_figure(entry.predict(run.hooked(step), task, entry.parse(task, sequence)))


def by_report(runs: Sequence[Run]) -> list[tuple[TaskReport, dict[str, list[Run]]]]:
    """Runs by the entry of their task, and within one by label; raises as `by_label` does."""
    groups: dict[TaskReport, dict[str, list[Run]]] = {}
    for label, members in by_label(runs).items():
        groups.setdefault(report_of(members[0].spec.task), {})[label] = members
    return list(groups.items())


def report(parts: Sequence[tuple[TaskReport, Mapping[str, Results]]]) -> str:
    """The HTML of `report_page`."""
    return report_page(parts).html()


def report_page(parts: Sequence[tuple[TaskReport, Mapping[str, Results]]], *, explorer: str | None = None) -> Page:
    """The page on tasks: their entries with the results of `analyse` by label, and a link to the page at `explorer`, if
    any.
    """
    results = [result for _, each in parts for result in each.values()]
    n_runs = sum(result["metrics"].sizes["seed"] for result in results)
    several = len(parts) > 1
    page = Page(
        "Trained models" if several else parts[0][0].title,
        f"{counted(len(results), 'configuration')}, {counted(n_runs, 'trained model')}. Mean and range are over seeds.",
        fold=True,
    )
    if explorer is not None:
        words = "Use the models: change sequences, switch parts off, patch, walk through training"
        page.block(f'<p><a href="{escape(quote(explorer))}">{words}</a> (the first seed of each configuration)</p>')
    for entry, each in parts:
        if several:
            page.part(entry.title)
        _open(page, entry, each)
        entry.page(page, each)
    return page


def _open(page: Page, entry: TaskReport, results: Mapping[str, Results]) -> None:
    """The pictures that decide, of the default preset of a system, else of the first configuration that has them."""
    if entry.opening is None:
        return
    defaults = {SYSTEMS.get(name).default for name in SYSTEMS.names()}
    presets = {label: result["metrics"].attrs.get("preset") for label, result in results.items()}
    for label, result in sorted(results.items(), key=lambda item: presets[item[0]] not in defaults):
        judged = GATE in result
        if (opening := entry.opening(of_learners(result, "above_chance") if judged else result)) is None:
            continue
        page.section("At a glance")
        page.text(f"{label}: {_finding(entry.opening, result) if judged else opening.finding}", "finding")
        for caption, figure in opening.figures:
            page.figure(figure, caption)
        return


def _finding(opening: Callable[[Results], Opening | None], result: Results) -> str:
    """The skills that were learned, and the finding about the models and skills that reached the gate."""
    said = [learned(result[GATE])]
    if result[GATE].learned.any() and (found := opening(of_learned_skills(of_learners(result)))) is not None:
        said.append(found.finding)
    return " ".join(filter(None, said))
