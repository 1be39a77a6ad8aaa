"""`mnemoscope train`, and any text in place of the one that a task is made of.

Such a task has a method `with_text(text)`, which returns the fields that differ, or raises an `InputError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import OfPresets
from mnemoscope.cli.parse import default_system, parse_changes, parse_seeds
from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    from mnemoscope.training.recorder import Report


@dataclass(frozen=True, kw_only=True)
class Train(OfPresets):
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


def run(options: Train) -> None:
    """Train what the options name, and say where it lies."""
    seeds, changes = parse_seeds(options.seeds), parse_changes(options.set)  # refused before anything is imported
    from mnemoscope.cli.output import console
    from mnemoscope.report.tables import counted

    if options.track is not None:
        from mnemoscope.cli.tracking import ready

        ready()
    if options.together and options.one_by_one:
        raise InputError("--together and --one-by-one exclude each other; leave one out")
    together = True if options.together else False if options.one_by_one else None
    presets = options.preset or (default_system()[1],)
    if options.corpus is not None:
        changes |= with_corpus(presets, options.corpus)
    specs = [ms.preset(name, options.recipe, seed, changes=changes) for name in presets for seed in seeds]
    track = options.track is not None
    runs = train_with_progress(specs, options.out, options.jobs, options.device, together=together, track=track)
    console.print(f"{counted(len(runs), 'finished run')} in {options.out}", highlight=False)


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
    from mnemoscope.cli.output import console
    from mnemoscope.cli.progress import live
    from mnemoscope.models.building import usable_device
    from mnemoscope.run.configurations import run_path

    paths = [run_path(out, spec) for spec in specs]
    unfinished = sum(not ms.Run(path, spec).finished for path, spec in zip(paths, specs, strict=True))
    usable_device(device)  # before the display begins
    with live(unfinished, console) as shown, _also(shown, specs, paths, track) as report:
        return ms.train_many(specs, paths, jobs=jobs, device=device, report=report, together=together)


def _also(
    shown: Report, specs: Sequence[ms.RunSpec], paths: Sequence[Path], track: bool
) -> AbstractContextManager[Report]:
    from mnemoscope.cli.tracking import tracked

    return tracked(shown, specs, paths) if track else nullcontext(shown)


@runtime_checkable
class OfText(Protocol):
    """A task that is made of a text."""

    def with_text(self, text: str) -> dict[str, Any]:
        """Fields that make this the task of another text."""
        ...


def with_corpus(presets: Sequence[str], file: Path) -> dict[str, Any]:
    """The changes that give presets another text; refused where a task is made of no text, or not of this one."""
    text, changes = _read(file), {}
    for name in presets:
        task = ms.PRESETS.get(name).task
        if not isinstance(task, OfText):
            able = ", ".join(each for each in ms.PRESETS.names() if isinstance(ms.PRESETS.get(each).task, OfText))
            raise InputError(f"--corpus is for presets whose task is made of a text: {able}; got {name}")
        try:
            changes |= {f"task.{field}": value for field, value in task.with_text(text).items()}
        except InputError as error:
            raise InputError(f"--corpus {file}: {error}") from None
    return changes


def _read(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--corpus {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--corpus {file} is no text in UTF-8; convert it first") from None
    if "\0" in text:
        raise InputError(f"--corpus {file} is no text: it holds a NUL character")
    return text


COMMANDS.add("train", Command(options=Train, run=run, section="train and look"))
