"""Reports on runs: what commands show of a task, registered by its name, and the page made of that.

A task without an entry gets the plain one of its kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.analyses.baselines import GATE, gate_of_run, select_learned_skills, select_learners
from mnemoscope.analyses.roles import with_roles
from mnemoscope.core import guests
from mnemoscope.core.batch import Batch
from mnemoscope.core.guests import Registry
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.core.protocols import HookedModel, Task, VectorTask
from mnemoscope.models.run import Run, by_label
from mnemoscope.report.findings import describe_learned_skills
from mnemoscope.report.page import TEMPLATES, Page
from mnemoscope.report.tables import Results, Table, pluralise

# ---- entries


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The opening of a page: the finding in one sentence, and the two or three pictures that decide."""

    finding: str
    figures: Sequence[tuple[str, go.Figure]]
    """The pictures, each with a caption."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """The entries of commands on runs of one task; functions of modules, since workers are sent them by name.

    >>> ms.REPORTS.get(task.name).title
    'Permutation lookup: elimination and recall'
    """

    title: str
    """The title of the page."""
    analyse: Callable[[Run], dict[str, xr.Dataset]]
    """All results of a run for the page and the tables; `metrics` among them."""
    page: Callable[[Page, Mapping[str, Results]], None]
    """Adds the sections of the page, from the results of `analyse` along `seed`, by label."""
    tables: Callable[[Mapping[str, Results]], list[Table]]
    """The tables of learned skills, from the same."""
    evaluate: Callable[[Run, int | None], dict[str, xr.Dataset]]
    """The evaluation of a run on a given number of drawn sequences; None: the task's own choice."""
    evaluation_tables: Callable[[Results], list[Table]]
    """The tables of one configuration's evaluation, along `seed`."""
    parse: Callable[[Any, str], Batch]
    """The one sequence of a task that a text describes."""
    predict: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """The predictions of a model on one sequence."""
    prediction_tables: Callable[[xr.Dataset], list[Table]]
    prediction_figure: Callable[[xr.Dataset], go.Figure]
    prediction_caption: str
    """The caption under the figure."""
    patterns: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """The attention of every head on sequences: `pattern` and `token`, as `attention_view` takes them."""
    example: Callable[[Any], Batch]
    """One unseen sequence, for a view."""
    about: str = ""
    """The task in one or two sentences, for the top of its page; empty: as the docstring of its class begins."""
    example_words: Callable[[Any, Batch], tuple[str, str]] | None = None
    """A sequence and its answer in the task's symbols, from the task and a batch of one; none: the names of its tokens
    and the last answer."""
    opening: Callable[[Results], Opening | None] | None = None
    """The opening of the page, from the results of the default preset of a system, or of the first configuration for
    which it returns something."""
    trajectory: Callable[..., xr.Dataset] | None = None
    """Measures of one checkpoint, scalars by name, from a model, its task and `seed`; none: those of any
    task (`analyses.skill_trajectory`)."""

    numbers: Callable[[Run], Mapping[str, float]] | None = None
    """Shares of one run by name, from 0 to 1, beside those that training logged, for sweeps; none: no further ones."""
    explorer: Callable[[], str] | None = None
    """The source of a JavaScript function of the task's fields, for the live explorer. It returns `complaint(tokens)`,
    why the task has no such sequence or null, and `references`, by name the rows of an exact predictor for tokens.
    None: the page has those of the sequences that it shows."""
    ideal_parts: Callable[[], str] | None = None
    """The source of a JavaScript function of the task's fields, for the live explorer of runs with clamps. It returns
    the ideal parts that a clamp may hold by name: functions of the tokens and of the activations that the part reads.
    None: the page shows such runs without their clamps."""
    symbols: Callable[[Any], Sequence[str]] | None = None
    """The name of every token, in their order; none: as `task.symbols` says, else by its number."""
    truncation: "Truncation | None" = None
    """The additions of the task to `truncate`, besides its skills; none: no additions."""


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """The additions of a task to the cuts of weights; functions of modules."""

    measure: Callable[..., dict[str, xr.Dataset]]
    """From model, task and sequences to datasets by name: `reference`, `targets` of the skills, `cuts` (the arguments
    of `analyses.truncation.truncate`); among the results is `truncation`."""
    tables: Callable[[Results], list[Table]]
    """The tables besides those of the cuts."""
    note: str
    """A note for the page."""


REPORTS: Registry[TaskReport] = Registry("report", "report")
"""The report of every task by the name of the task."""


@dataclass(frozen=True, kw_only=True)
class DrawReport:
    """The report of `reproduce` on the claims of a system that are about draws, from their evidence."""

    title: str
    """The title of the page."""
    tables: Callable[[Results], list[Table]]
    """The tables of measurements: by id of a claim its effects and further quantities, over `draw`."""
    page: Callable[[Page, Results], None]
    """Sections of the page, from the same."""


DRAW_REPORTS: Registry[DrawReport] = Registry("report on draws", "report")
"""Reports by name of the system."""


# ---- the report


def find_report(task: Task) -> TaskReport:
    """The entry of a task, or the plain one of its kind; raises InputError where its system cannot be imported as a
    whole.
    """
    known = REPORTS.names()
    guests.check_importable(type(task).__module__)
    if task.name in known:
        return REPORTS.get(task.name)
    from mnemoscope.report.plain_report import PLAIN
    from mnemoscope.report.vector_report import VECTORS

    entry = VECTORS if isinstance(task, VectorTask) else PLAIN
    return replace(entry, title=task.name.replace("-", " ").replace("_", " ").capitalize())


def analyse_run(run: Run) -> dict[str, xr.Dataset]:
    """All results of a run that the report shows, and whether its model has learned the task."""
    return {**find_report(run.spec.task).analyse(run), GATE: gate_of_run(run)}


def run_attention(run: Run, batch: Batch, *, step: int | None = None) -> xr.Dataset:
    """The attention of a run on the first sequence of a batch, for a view, with heads called by their roles.

    Roles are chosen by the last checkpoint; a task without skills, or with prompts of several lengths, has none. Raises
    InputError where there is no checkpoint of that step.
    """
    from mnemoscope.report.plain_report import roles

    task = run.spec.task
    shown = find_report(task).patterns(run.hooked(step), task, batch).isel(example=0)
    named = {} if isinstance(task, VectorTask) else roles(run)
    return with_roles(shown, named) if named else shown


def prediction_figure(run: Run, sequence: str, *, step: int | None = None) -> go.Figure:
    """The predictions of a run's model on one sequence, token by token, beside the exact predictor.

    `sequence` is in the task's form, or numbers of tokens; `step` is that of the checkpoint, none: the last. Raises
    InputError where the sequence is refused, or there is no such checkpoint.
    """
    task = run.spec.task
    entry = find_report(task)
    return entry.prediction_figure(entry.predict(run.hooked(step), task, entry.parse(task, sequence)))


def group_by_report(runs: Sequence[Run]) -> list[tuple[TaskReport, dict[str, list[Run]]]]:
    """Runs by the entry of their task, and within one by label; raises as `by_label` does."""
    groups: dict[TaskReport, dict[str, list[Run]]] = {}
    for label, members in by_label(runs).items():
        groups.setdefault(find_report(members[0].spec.task), {})[label] = members
    return list(groups.items())


def report(parts: Sequence[tuple[TaskReport, Mapping[str, Results]]], *, tasks: Sequence[Task] = ()) -> str:
    """The HTML of `report_page`."""
    return report_page(parts, tasks=tasks).html()


def report_page(
    parts: Sequence[tuple[TaskReport, Mapping[str, Results]]],
    *,
    tasks: Sequence[Task] = (),
    explorer: str | None = None,
) -> Page:
    """The page on tasks: their entries with the results of `analyse` by label.

    A part says what the first of the `tasks` with its entry is, with an example. `explorer` is a page that is linked.
    """
    from mnemoscope.report.task_words import task_words

    words = {find_report(task): task_words(task) for task in reversed(tasks)}
    results = [result for _, each in parts for result in each.values()]
    n_runs = sum(result["metrics"].sizes["seed"] for result in results)
    several = len(parts) > 1
    page = Page(
        "Trained models" if several else parts[0][0].title,
        f"{pluralise(len(results), 'configuration')}, {pluralise(n_runs, 'trained model')}. "
        "Mean and range are over seeds.",
        fold=True,
        once=True,
    )
    page.write(
        f"{TEMPLATES}report.html.jinja",
        explorer=None if explorer is None else quote(explorer),
        parts=[
            (entry.title if several else "", words.get(entry), _page_opening(entry, each), entry, each)
            for entry, each in parts
        ],
    )
    return page


def _page_opening(entry: TaskReport, results: Mapping[str, Results]) -> tuple[str, Opening] | None:
    """The finding and the pictures that decide.

    They are of the default preset of a system, else of the first configuration that has them.
    """
    if entry.opening is None:
        return None
    defaults = {SYSTEMS.get(name).default for name in SYSTEMS.names()}
    presets = {label: result["metrics"].attrs.get("preset") for label, result in results.items()}
    for label, result in sorted(results.items(), key=lambda item: presets[item[0]] not in defaults):
        judged = GATE in result
        if (opening := entry.opening(select_learners(result, "above_chance") if judged else result)) is not None:
            return f"{label}: {_finding(entry.opening, result) if judged else opening.finding}", opening
    return None


def _finding(opening: Callable[[Results], Opening | None], result: Results) -> str:
    """The skills that were learned, and the finding about the models and skills that reached the gate."""
    said = [describe_learned_skills(result[GATE])]
    if result[GATE].learned.any() and (found := opening(select_learned_skills(select_learners(result)))) is not None:
        said.append(found.finding)
    return " ".join(filter(None, said))
