"""`mnemoscope train` and `mnemoscope sweep`, with training followed in Weights & Biases.

A task that is made of a text may be given another one: it has a method `with_text(text)`, which returns the fields that
differ, or raises an `InputError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from tyro.conf import Positional, UseAppendAction

import mnemoscope as ms
from mnemoscope.cli.analysis import xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import JobOptions, PresetOptions, ResultOptions
from mnemoscope.cli.parse import default_system, parse_changes, parse_seeds, read_keys
from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    from mnemoscope.run.sweep import Sweep
    from mnemoscope.training.recorder import Progress, Report

PROJECT = "mnemoscope"
"""The project in Weights & Biases unless WANDB_PROJECT names another."""
KEYS = "the keys preset, seeds and axes"


@dataclass(frozen=True, kw_only=True)
class Train(PresetOptions):
    """Train presets over seeds; interrupted runs continue, finished ones are left alone."""

    seeds: str = "0"
    """Seeds, such as `3`, `0-15` or `0-3,7`."""
    together: bool = False
    """Train all seeds of a configuration as one program; on a GPU they do so anyhow, in groups that fit its memory."""
    one_by_one: bool = False
    """Train seeds one after the other on a GPU too."""
    out: Path = Path("runs")
    """Runs go to OUT/<preset>-<recipe>/seed-<seed>."""
    device: str = "cpu"
    """Where to train, such as cpu, cuda or cuda:1."""
    corpus: Path | None = None
    """Text file in place of the one that the task is made of, for tasks that are made of a text."""
    track: Literal["wandb"] | None = None
    """Follow training in Weights & Biases too; WANDB_MODE=offline keeps it on this machine."""
    set: tuple[str, ...] = ()
    """Changes such as `recipe.n_steps=500 model.normalization=none task.<field>=<value>`."""
    clamp: UseAppendAction[tuple[str, ...]] = ()
    """Place that training holds, such as `L0H1=zero from 100`, `'L0H0 pattern=pattern previous token'` or `ideal NAME`,
    after those of the recipe; may be repeated."""


def train(options: Train) -> None:
    """Train what the options name, and say where it lies."""
    seeds, changes = parse_seeds(options.seeds), parse_changes(options.set)  # refused before anything is imported
    from mnemoscope.cli.output import console
    from mnemoscope.report.tables import pluralise

    if options.track is not None:
        wandb_library()
    if options.together and options.one_by_one:
        raise InputError("--together and --one-by-one exclude each other; leave one out")
    together = True if options.together else False if options.one_by_one else None
    presets = options.preset or (default_system()[1],)
    if options.corpus is not None:
        changes |= with_corpus(presets, options.corpus)
    clamps = tuple(map(ms.core.Clamp.read, options.clamp))
    specs = [
        ms.preset(name, options.recipe, seed, changes=with_clamps(name, options.recipe, changes, clamps))
        for name in presets
        for seed in seeds
    ]
    track = options.track is not None
    runs = train_with_progress(specs, options.out, options.jobs, options.device, together=together, track=track)
    console.print(f"{pluralise(len(runs), 'finished run')} in {options.out}", highlight=False)


def with_clamps(preset: str, recipe: str, changes: dict[str, Any], clamps: tuple[ms.core.Clamp, ...]) -> dict[str, Any]:
    """The changes of a preset with clamps after those that its recipe or the changes name."""
    if not clamps:
        return changes
    return {**changes, "recipe.clamps": (*ms.preset(preset, recipe, changes=changes).recipe.clamps, *clamps)}


def train_with_progress(
    specs: Sequence[ms.RunSpec],
    out: Path,
    jobs: int,
    device: str = "cpu",
    *,
    together: bool | None = None,
    track: bool = False,
) -> list[ms.Run]:
    """Train with a live display, and in Weights & Biases with `track`; a run goes to <out>/<label>/seed-<seed>."""
    from mnemoscope.cli.output import live_training
    from mnemoscope.models.building import usable_device
    from mnemoscope.run.sweep import run_path
    from mnemoscope.training.clamped import check_clamps

    paths = [run_path(out, spec) for spec in specs]
    unfinished = sum(not ms.Run(path, spec).finished for path, spec in zip(paths, specs, strict=True))
    usable_device(device)  # before the display begins
    for spec in {spec.label: spec for spec in specs}.values():
        check_clamps(spec)
    with (
        live_training(unfinished) as shown,
        report_to_wandb(shown, specs, paths) if track else nullcontext(shown) as report,
    ):
        return ms.train_many(specs, paths, jobs=jobs, device=device, report=report, together=together)


@runtime_checkable
class TextTask(Protocol):
    """A task that is made of a text."""

    def with_text(self, text: str) -> dict[str, Any]:
        """Fields that make this the task of another text."""
        ...


def with_corpus(presets: Sequence[str], file: Path) -> dict[str, Any]:
    """The changes that give presets another text; refused where a task is made of no text, or not of this one."""
    text, changes = _read_text(file), {}
    for name in presets:
        task = ms.PRESETS.get(name).task
        if not isinstance(task, TextTask):
            able = ", ".join(each for each in ms.PRESETS.names() if isinstance(ms.PRESETS.get(each).task, TextTask))
            raise InputError(f"--corpus is for presets whose task is made of a text: {able}; got {name}")
        try:
            changes |= {f"task.{field}": value for field, value in task.with_text(text).items()}
        except InputError as error:
            raise InputError(f"--corpus {file}: {error}") from None
    return changes


def _read_text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--corpus {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--corpus {file} is no text in UTF-8; convert it first") from None
    if "\0" in text:
        raise InputError(f"--corpus {file} is no text: it holds a NUL character")
    return text


# ---- Weights & Biases


@contextmanager
def report_to_wandb(report: Report, specs: Sequence[ms.RunSpec], paths: Sequence[Path]) -> Iterator[Report]:
    """A report function that also sends every line to Weights & Biases, one run there for each run here.

    wandb's own environment variables and settings apply: project, entity, offline mode. A run that is continued here
    continues there; runs that are open at the end are closed.
    """
    wandb = wandb_library()
    by_path = dict(zip(paths, specs, strict=True))
    begun: dict[Path, Any] = {}

    def both(line: Progress) -> None:
        report(line)
        if line.path not in begun:
            begun[line.path] = _start_wandb_run(wandb, line.path, by_path[line.path])
        begun[line.path].log(dict(line.metrics), step=line.step)
        if line.step == line.n_steps:
            begun.pop(line.path).finish()

    try:
        yield both
    finally:
        for run in begun.values():
            run.finish(exit_code=1)


def wandb_library() -> Any:
    """The library, to be used without a question to the user; refused where it is missing or nobody is logged in."""
    try:
        import wandb
    except ImportError:
        raise InputError("--track wandb needs wandb: pip install 'mnemoscope[wandb]'") from None
    if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
        raise InputError("--track wandb: nobody is logged in; run `wandb login`, or set WANDB_MODE=offline")
    return wandb


def _start_wandb_run(wandb: Any, path: Path, spec: ms.RunSpec) -> Any:
    """A separate run beside others; its id is that of the directory, so that continuing continues it."""
    name = "/".join(path.parts[-2:])
    return wandb.init(
        project=wandb.setup().settings.project or PROJECT,
        name=name,
        id=hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16],
        group=path.parent.name,
        job_type="train",
        config=spec.to_dict(),
        resume="allow",
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )


# ---- sweeps


@dataclass(frozen=True, kw_only=True)
class SweepOptions(JobOptions, ResultOptions):
    """Train a preset over a grid of configurations, or find the largest task that each of them learns."""

    file: Positional[Path]
    """YAML file with preset, seeds and axes, and recipe, changes, largest and best_of if wanted."""
    out: Path = Path("sweeps")
    """Runs go to OUT/runs, arrays, a table, a page with figures and index.html to OUT."""


def sweep(options: SweepOptions) -> None:
    """Train or search what the file declares; write arrays and the page, print the table."""
    from mnemoscope.cli.commands.index import refresh
    from mnemoscope.cli.output import console, show, write_arrays, write_page, write_table
    from mnemoscope.report.sweeps import sweep_page, sweep_table

    declared = read_sweep(options.file)
    found = _search_largest(declared, options) if declared.largest else _train_grid(declared, options)
    logged, table = sweep_table(found.drop_vars(found.attrs.get("numbers", ()))), sweep_table(found)
    write_arrays(options.out, {"sweep": found})
    write_table(options.out, table, latex=options.latex)
    page = sweep_page(found)
    write_page(options.out / "sweep.html", page.html(), page.figures, options)
    show(logged.title, logged.header, logged.rows, n_text=logged.n_text)
    console.print(f"wrote sweep.nc, sweep.csv and sweep.html in {options.out}", highlight=False)
    refresh(options.out)


def _train_grid(sweep: Sweep, options: SweepOptions) -> xr.Dataset:
    from mnemoscope.cli.output import countdown
    from mnemoscope.report.task_report import find_report
    from mnemoscope.run.sweep import final_metrics, over_sweep

    runs = train_with_progress(sweep.specs(), options.out / "runs", options.jobs)
    logged, numbers = final_metrics(sweep, runs), find_report(runs[0].spec.task).numbers
    if numbers is None:
        return logged
    with countdown(1, "runs measured"):
        measured = over_sweep(sweep, runs, numbers, jobs=options.jobs)
    return logged.merge(measured).assign_attrs(numbers=list(map(str, measured.data_vars)))


def _search_largest(sweep: Sweep, options: SweepOptions) -> xr.Dataset:
    from mnemoscope.cli.output import countdown
    from mnemoscope.run.sweep import search_sweep

    with countdown(1, "searches"):
        return search_sweep(sweep, options.out / "runs", jobs=options.jobs)


def read_sweep(file: Path) -> Sweep:
    """The sweep that a file declares; its seeds are a list, or words such as 0-15."""
    from mnemoscope.core.specification import from_plain
    from mnemoscope.run.sweep import Sweep

    content: dict[str, Any] = dict(read_keys(file, str(file), KEYS))
    if missing := [key for key in ("preset", "seeds", "axes") if key not in content]:
        raise InputError(f"{file} must hold {KEYS}; {missing[0]} is missing")
    if isinstance(seeds := content.get("seeds"), str | int):
        content["seeds"] = parse_seeds(str(seeds))
    return from_plain(Sweep, content, "sweep")


COMMANDS.add("train", Command(options=Train, run=train, section="study a model of your own or a language model"))
COMMANDS.add("sweep", Command(options=SweepOptions, run=sweep, section="study a model of your own or a language model"))
