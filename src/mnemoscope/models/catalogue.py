"""All runs below a directory, whatever state they are in: what a page that lists them is made of.

`find_runs` is for analyses and refuses what it cannot read. Here a run that is damaged, interrupted or has logged
nothing yet is listed like any other, with what can be known of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mnemoscope.core.errors import InputError
from mnemoscope.models.progress_file import read_progress
from mnemoscope.models.run import Run, open_run


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A run with its progress."""

    run: Run
    finished: bool
    last_step: int
    """The step that training ended with, or ends with unless it stops early."""
    reached: int
    """The last step that was logged or kept."""
    progress: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What was logged, one list a measure, beside `step`; empty if nothing was."""
    problem: str = ""
    """Why the progress cannot be read."""

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.run.spec.seed

    @property
    def state(self) -> str:
        """In words: `finished`, `stopped early`, `interrupted` or `not readable`; a run that is at work now counts as
        interrupted.
        """
        if self.problem:
            return "not readable"
        if not self.finished:
            return "interrupted"
        return "stopped early" if self.last_step < self.run.spec.recipe.n_steps else "finished"

    def last(self, measure: str) -> float | None:
        """The last value of a measure; None where it was not logged."""
        values = self.progress.get(measure)
        return values[-1] if values else None


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What was found."""

    runs: Sequence[Listed]
    """By configuration and seed."""
    unreadable: Mapping[Path, str]
    """Run directories that cannot be opened, and why."""


def catalogue(directory: Path) -> Catalogue:
    """All runs at or below a directory; there may be none."""
    found, unreadable = [], {}
    for file in sorted(directory.rglob("run.json")):
        try:
            found.append(_listed(open_run(file.parent)))
        except (InputError, OSError) as error:
            unreadable[file.parent] = str(error)
    found.sort(key=lambda listed: (listed.run.label, listed.seed))
    return Catalogue(runs=found, unreadable=unreadable)


def _listed(run: Run) -> Listed:
    finished, problem, lines = run.finished, "", []
    file = run.path / "metrics.jsonl"
    try:
        if finished or (file.exists() and b"\n" in file.read_bytes()):  # else nothing was logged yet
            lines = read_progress(file, finished=finished)
    except (InputError, OSError) as error:
        problem = str(error)
    progress = {name: [line[name] for line in lines] for name in lines[0]} if lines else {}
    reached = max((int(lines[-1]["step"]) if lines else 0), *run.steps, 0)
    return Listed(
        run=run, finished=finished, last_step=run.last_step, reached=reached, progress=progress, problem=problem
    )
