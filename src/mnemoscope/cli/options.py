"""Options that commands share; a command's own options inherit from these. Field docstrings are the help texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import Positional, UseAppendAction, arg


@dataclass(frozen=True)
class RegisteredNames:
    """Mark of an option that takes registered names, for completion."""

    kind: Literal["presets", "recipes", "systems", "claims", "runs", "analyses"]
    also: tuple[str, ...] = ()
    """Other words that it takes."""


Claims = Annotated[tuple[str, ...], RegisteredNames("claims")]
RunPath = Annotated[Path, RegisteredNames("runs")]
RunPaths = Annotated[tuple[Path, ...], RegisteredNames("runs")]


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Every command has these."""

    config: Path | None = None
    """YAML file: a section per command, a key per option; the command line takes precedence."""
    guests: Annotated[tuple[str, ...], arg(name="import", metavar="FILE|MODULE"), UseAppendAction] = ()
    """Python file or module with tasks, presets, claims or commands of your own; may be repeated.
    In a configuration file: a list under `import`, for all commands."""


Format = Literal["svg", "pdf", "png"]
FORMATS = get_args(Format)


@dataclass(frozen=True, kw_only=True)
class FigureOptions(CommandOptions):
    """Options of commands that write a page with figures."""

    figures: tuple[Format, ...] = ()
    """Write every figure of the page as files in these formats too, made for print: figures/<page>-<n>-<words>.<format>
    beside the page. Needs `pip install 'mnemoscope[figures]'` and Chrome or Chromium."""
    figure_width: float | None = None
    """Inches; none: 3.25, a column of a paper, and 6.75 where panels stand beside each other."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(FigureOptions):
    """Options of commands that write a report on runs."""

    explore: bool = True
    """Write <report>-explorer.html beside the report too, in which the first seed of every configuration runs, and
    link it."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(CommandOptions):
    """Options of commands that write tables."""

    latex: bool = False
    """Write every table for LaTeX too, <table>.tex with the rules of booktabs."""


@dataclass(frozen=True, kw_only=True)
class ResultOptions(FigureOptions, TableOptions):
    """Options of commands that write tables and a page with figures."""


@dataclass(frozen=True, kw_only=True)
class JobOptions(CommandOptions):
    """Options of commands that use worker processes."""

    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    scheduler: str | None = None
    """Work on a Dask cluster: `local` (JOBS workers on this machine), the address of a scheduler, or a YAML file that
    makes a cluster, such as one on Slurm. Needs `pip install 'mnemoscope[dask]'`."""


@dataclass(frozen=True, kw_only=True)
class PresetOptions(JobOptions):
    """Options of commands that train presets."""

    preset: Annotated[tuple[str, ...], RegisteredNames("presets")] = ()
    """Configurations; `mnemoscope list presets` shows them. None: the default of an installed system."""
    recipe: Annotated[str, RegisteredNames("recipes")] = "quick"
    """Training recipe; `mnemoscope list presets` shows those of every preset."""


@dataclass(frozen=True, kw_only=True)
class ClaimOptions(JobOptions):
    """Options of commands that try claims."""

    what: Positional[Claims] = ()
    """Systems or ids of claims; none: those on the first system that has a default preset."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(JobOptions):
    """Options of commands that look at runs."""

    runs: Positional[RunPaths]
    """Run directories, directories that hold some, or words such as `zoo` or `zoo:<configuration>`."""


@dataclass(frozen=True, kw_only=True)
class AnalysisOutputOptions(RunOptions, ResultOptions):
    """Options of commands that take models apart, beside those of the analysis, which come from its record."""

    out: Path = Path("results")
    """Arrays, tables and a page with figures go to OUT/<configuration>/<command> in place of earlier ones."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions(AnalysisOutputOptions):
    """Options of the commands of records, beside those of the analysis."""

    original: UseAppendAction[tuple[Path, ...]] = ()
    """Published model, a safetensors file with its configuration in the metadata: a table shows every number of it
    beside the seeds, with its rank. May be repeated."""
    clamped: bool = False
    """Look at models with the clamps of their training in force; results go to OUT/<configuration>-clamped."""
    dictionary: UseAppendAction[tuple[Path, ...]] = ()
    """Dictionary whose features and error become sites (kinds feature and error), a file or directory; one name for all
    runs, such as `dictionaries/dictionary-00.safetensors` after `dictionary train`. May be repeated; results go to
    OUT/<configuration>-dictionaries."""


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(AnalysisOutputOptions):
    """Options of commands that guests make with `analysis_command`."""

    split: Literal["train", "test"] = "test"
    """Sequences of the training set, or unseen ones."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(CommandOptions):
    """Options of commands that show a model on one sequence."""

    run: Positional[RunPath]
    """Run directory, or a word such as `zoo:<configuration>/seed-<seed>`."""
    sequence: Positional[str]
    """As the task reads it, such as a text or numbers of tokens."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
