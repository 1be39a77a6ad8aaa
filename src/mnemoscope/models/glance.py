"""Runs at a glance: from the text in their directories, without a task, a model or a tensor.

`find_runs` is for analyses and refuses what it cannot read. Here a run that is damaged, interrupted, training or has
logged nothing yet is seen like any other, with what can be known of it.

*Does not show* whether a run can be opened: weights are checked by `models.checkpoint`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnemoscope.core.errors import InputError
from mnemoscope.models.files import is_held, read_progress
from mnemoscope.models.zoo import WORD, is_label, unpack_word

if TYPE_CHECKING:
    from mnemoscope.core.specification import RunSpec


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run directory with its progress."""

    path: Path
    content: Mapping[str, Any] = field(repr=False)
    """The content of run.json."""
    preset: str
    recipe: str
    seed: int
    n_steps: int
    """The number of steps of the recipe."""
    steps: Sequence[int] = ()
    """The steps at which a checkpoint exists, ascending."""
    finished: bool
    training: bool = False
    """True if a process trains it now."""
    progress: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The log, one list a measure, beside `step`; empty if nothing was logged."""
    problem: str = ""
    """Why the progress cannot be read."""

    @cached_property
    def spec(self) -> "RunSpec":
        """The specification; takes torch along."""
        from mnemoscope.core.specification import RunSpec

        return RunSpec.from_dict(self.content)

    @property
    def label(self) -> str:
        """The label of the run, as `Run.label`; takes torch along."""
        from mnemoscope.core.presets import label_of

        return label_of(self.spec)

    @property
    def last_step(self) -> int:
        """The step that training ended with, or ends with unless it stops early."""
        return self.content.get("last_step", self.n_steps)

    @property
    def reached(self) -> int:
        """The last step that was logged or kept."""
        return max(int(self.last("step") or 0), *self.steps, 0)

    @property
    def state(self) -> str:
        """In words: `finished`, `stopped early`, `training`, `interrupted` or `not readable`."""
        if self.problem:
            return "not readable"
        if not self.finished:
            return "training" if self.training else "interrupted"
        return "stopped early" if self.last_step < self.n_steps else "finished"

    def last(self, measure: str) -> float | None:
        """The last value of a measure; None where it was not logged."""
        values = self.progress.get(measure)
        return values[-1] if values else None


def summarise_runs(path: Path, *, checked: bool = False) -> tuple[list[RunSummary], dict[Path, str]]:
    """The runs at or below a directory, or of a word such as `zoo:<configuration>`; there may be none.

    Returns the runs by configuration and seed, and directories of others, with the reason why they cannot be read.
    `checked` also checks their specifications, which takes torch along.
    """
    found, unreadable = [], {}
    for folder in run_folders(path):
        try:
            run = _summarise(folder)
            key = run.label if checked else f"{run.preset}-{run.recipe}"
            found.append((key, run.seed, run))
        except (InputError, OSError) as error:
            unreadable[folder] = str(error)
    return [run for *_, run in sorted(found, key=lambda item: item[:2])], unreadable


def run_folders(path: str | Path) -> list[Path]:
    """The run directories at or below a directory, or of a word for runs of the zoo."""
    folders = unpack_word(path)
    return [file.parent for file in sorted(Path(path).rglob("run.json"))] if folders is None else folders


def no_runs_error(path: Path) -> InputError:
    """The message about a place without runs."""
    if str(path) == "smollm2" or path.suffix == ".gguf" or (path / "config.json").is_file():
        return InputError(
            f"{path} is a language model, and this takes trained runs; `mnemoscope prompts stability`, `mnemoscope "
            "prompts retrieval` and `mnemoscope claims run` take it with --model"
        )
    way_out = (
        f"{WORD}:{path} is a shipped one" if path.parts and is_label(path.parts[0]) else "`mnemoscope train` makes one"
    )
    return InputError(f"{path} is no run directory and holds none with a checkpoint; {way_out}")


def read_run_file(folder: Path) -> dict[str, Any]:
    """The content of the run.json of a run directory; raises InputError where there is none, or it cannot be read."""
    file = folder / "run.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        inner = sorted(folder.glob("*/run.json")) or sorted(folder.glob("*/*/run.json"))
        way_out = f"it holds some; choose one, such as {inner[0].parent}" if inner else "`mnemoscope train` makes one"
        raise InputError(f"{folder} is no run directory: it has no run.json; {way_out}") from None
    except ValueError as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise _no_specification(folder)
    if type(last := content.get("last_step", 0)) is not int:
        raise InputError(f"{file} cannot be read: last_step must be a whole number; got {last!r}")
    return content


def _no_specification(folder: Path) -> InputError:
    return InputError(f"{folder / 'run.json'} cannot be read: it needs preset, seed, task, model and recipe")


def checkpoint_steps(folder: Path) -> tuple[int, ...]:
    """Steps of which a run directory has a checkpoint, ascending."""
    files = (folder / "checkpoints").glob("[0-9]*.safetensors")
    names = {file.name.partition(".")[0] for file in files}
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def _summarise(folder: Path) -> RunSummary:
    """The run in a directory; raises InputError or OSError where its run.json cannot be read."""
    content = read_run_file(folder)
    try:
        preset, seed = content["preset"], content["seed"]
        recipe, n_steps = content["recipe"]["name"], content["recipe"]["n_steps"]
        if [type(value) for value in (preset, recipe, seed, n_steps)] != [str, str, int, int]:
            raise TypeError
    except (KeyError, TypeError):
        raise _no_specification(folder) from None
    finished, problem, lines = (folder / "done").exists(), "", []
    log = folder / "metrics.jsonl"
    try:
        if finished or (log.exists() and b"\n" in log.read_bytes()):  # else nothing was logged yet
            lines = read_progress(log, finished=finished)
    except (InputError, OSError) as error:
        problem = str(error)
    return RunSummary(
        path=folder,
        content=content,
        preset=preset,
        recipe=recipe,
        seed=seed,
        n_steps=n_steps,
        steps=checkpoint_steps(folder),
        finished=finished,
        training=not finished and is_held(folder),
        progress={name: [line[name] for line in lines] for name in lines[0]} if lines else {},
        problem=problem,
    )
