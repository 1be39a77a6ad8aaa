"""The commands that look at runs, and their options; field docstrings are the help texts."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Accuracy and loss beside the exact predictors, by what the task tells apart, and beside published figures."""

    runs: Positional[tuple[Path, ...]]
    """Run directories, directories that hold some, or words such as `zoo:v3-published`."""
    n_samples: int | None = None
    """Sequences to draw; none: enumerate all of them, exactly, or draw a few hundred where there are too many."""
    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    out: Path | None = None
    """Directory for the arrays (netCDF) and tables (CSV)."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Predict:
    """What a model says about one sequence, token by token, beside the exact predictor."""

    run: Positional[Path]
    """Run directory, or a word such as `zoo:v3-published/seed-16`."""
    sequence: Positional[str]
    """As the task reads it: "x1 y1 x2 ...", ending with an x or with its y; a text; numbers of tokens."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class View:
    """An interactive page with the attention of every head, and the predictions, on one sequence."""

    run: Positional[Path]
    """Run directory, or a word such as `zoo:v3-published/seed-16`."""
    sequence: Positional[str]
    """As the task reads it: "x1 y1 x2 ...", ending with an x or with its y; a text; numbers of tokens."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
    out: Path = Path("view.html")
    """The page."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One self-contained HTML page on all given runs."""

    runs: Positional[tuple[Path, ...]]
    """Run directories, directories that hold some, or words such as `zoo:v3-published`."""
    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    out: Path = Path("report.html")
    """The page."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Follow:
    """Measure every checkpoint of finished runs, keep that in their directories, and say when what sets in."""

    runs: Positional[tuple[Path, ...]]
    """Run directories, directories that hold some, or words such as `zoo:memories-quick`."""
    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""
