"""Reports of commands on runs of a task, or on a system without runs: entries registered under these names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core.batch import Batch
from mnemoscope.core.guests import Registry
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.run import Run
from mnemoscope.report.page import Page
from mnemoscope.report.tables import Results, Table


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The opening of a page: the finding in one sentence, and the two or three pictures that decide."""

    finding: str
    figures: Sequence[tuple[str, go.Figure]]
    """The pictures, each with a caption."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """The entries of commands on runs of one task; functions of modules, since workers are sent them by name."""

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
    opening: Callable[[Results], Opening | None] | None = None
    """The opening of the page, from the results of the default preset of a system, or of the first configuration for
    which it returns something."""
    trajectory: Callable[..., xr.Dataset] | None = None
    """Measures of one checkpoint, scalars by name, from a model, its task and `seed`; none: `track` takes those of any
    task (`analyses.skill_trajectory`)."""

    numbers: Callable[[Run], Mapping[str, float]] | None = None
    """Shares of one run by name, from 0 to 1, beside those that training logged, for sweeps; none: no further ones."""
    explorer: Callable[[], str] | None = None
    """The source of a JavaScript function of the task's fields, for the live explorer. It returns `complaint(tokens)`,
    why the task has no such sequence or null, and `references`, by name the rows of an exact predictor for tokens.
    None: the page has those of the sequences that it shows."""
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
