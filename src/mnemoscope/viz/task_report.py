"""Reports of commands on runs of a task, or on a system without runs: entries registered under these names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.registry import Registry
from mnemoscope.models.run import Run
from mnemoscope.viz.page import Page
from mnemoscope.viz.tables import Results, Table


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The opening of a page: the finding in one sentence, and the two or three pictures that decide."""

    finding: str
    figures: Sequence[tuple[str, go.Figure]]
    """With a caption each."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """The entries of commands on runs of one task; functions of modules, since workers are sent them by name."""

    title: str
    """Of the page."""
    analyse: Callable[[Run], dict[str, xr.Dataset]]
    """All that the page and the tables show of a run; `metrics` among it."""
    page: Callable[[Page, Mapping[str, Results]], None]
    """Sections of the page, from what `analyse` gives along `seed`, by label."""
    tables: Callable[[Mapping[str, Results]], list[Table]]
    """What was learned, from the same."""
    evaluate: Callable[[Run, int | None], dict[str, xr.Dataset]]
    """What a run is evaluated on, with a number of sequences to draw; None: the task's own choice."""
    evaluation_tables: Callable[[Results], list[Table]]
    """Of one configuration, along `seed`."""
    parse: Callable[[Any, str], Batch]
    """The one sequence of a task that a text describes."""
    predict: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """What a model predicts on one sequence."""
    prediction_tables: Callable[[xr.Dataset], list[Table]]
    prediction_figure: Callable[[xr.Dataset], go.Figure]
    prediction_caption: str
    """Under the figure."""
    patterns: Callable[[HookedModel, Any, Batch], xr.Dataset]
    """The attention of every head on sequences: `pattern` and `token`, as `attention_view` takes them."""
    example: Callable[[Any], Batch]
    """One unseen sequence, for a view."""
    opening: Callable[[Results], Opening | None] | None = None
    """What the page opens with, from the results of the default preset of a system, or of the first configuration for
    which it returns something."""
    trajectory: Callable[..., xr.Dataset] | None = None
    """Measures of one checkpoint, scalars by name, from a model, its task and `seed`; none: the task has none of its
    own, and `track` takes those of any task (`analyses.skill_trajectory`)."""

    numbers: Callable[[Run], Mapping[str, float]] | None = None
    """A few shares of one run by name, from 0 to 1, beside what training logged, for sweeps over configurations; none:
    nothing."""
    explorer: Callable[[], str] | None = None
    """For the live explorer the source of a JavaScript function from the task's fields to `complaint(tokens)`, why the
    task has no such sequence or null, and `references`, by name the rows of an exact predictor for tokens; none: the
    page has those of the sequences that it shows."""
    symbols: Callable[[Any], Sequence[str]] | None = None
    """What every token is called, in their order; none: as `task.symbols` says, else by its number."""
    truncation: "Truncation | None" = None
    """What `truncate` measures and shows of the task besides its skills; none: nothing."""


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """The additions of a task to the cuts of weights; functions of modules."""

    measure: Callable[..., dict[str, xr.Dataset]]
    """Takes model, task and sequences, and by name `reference`, `targets` of the skills and `cuts`, the arguments of
    `analyses.truncation.truncate`; gives `truncation` and what else there is."""
    tables: Callable[[Results], list[Table]]
    """Besides those of the cuts."""
    note: str
    """For the page."""


REPORTS: Registry[TaskReport] = Registry("report", "report")


@dataclass(frozen=True, kw_only=True)
class DrawReport:
    """The report of `reproduce` on the claims of a system that are about draws, from their evidence."""

    title: str
    """Of the page."""
    tables: Callable[[Results], list[Table]]
    """What was measured: by id of a claim its effects, and what was measured beside, over `draw`."""
    page: Callable[[Page, Results], None]
    """Sections of the page, from the same."""


DRAW_REPORTS: Registry[DrawReport] = Registry("report on draws", "report")
"""By name of the system."""
