"""`mnemoscope track`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import mnemoscope as ms
from mnemoscope.cli.analysis import analysed, xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import OfRuns
from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Track(OfRuns):
    """Measure every checkpoint of finished runs, keep that in their directories, and say when what sets in."""


def run(options: Track) -> None:
    """Measure what is not measured yet, and print onsets."""
    from mnemoscope.cli.output import console
    from mnemoscope.report.tables import counted

    runs = ms.find_runs(options.runs)
    finished = [run for run in runs if run.finished]
    if len(finished) < len(runs):
        left = counted(len(runs) - len(finished), "run")
        console.print(f"{left} not finished and left out", highlight=False)
    if not finished:
        raise InputError("none of the runs is finished; `mnemoscope train` continues them")
    track_all(finished, options.jobs)


def track_all(runs: Sequence[ms.Run], jobs: int) -> None:
    """Measure checkpoints of runs that lack it and keep that with each run; print onsets by configuration."""
    from mnemoscope.cli.output import console, show
    from mnemoscope.report.curves import onset_table
    from mnemoscope.report.tables import counted

    missing = [run for run in runs if not _complete(run)]
    analysed(missing, track_run, jobs, "runs followed")
    complete = len(runs) - len(missing)
    followed = f"followed {counted(len(missing), 'run')}"
    console.print(f"{followed}; {complete} {'was' if complete == 1 else 'were'} complete", highlight=False)
    for label, group in ms.models.by_label(runs).items():
        followed = ms.analyses.along_seed(group, [_read(run) for run in group])
        table = onset_table(followed)
        show(f"{label}, {counted(len(group), 'seed')}: {table.title}", table.header, table.rows)


def track_run(run: ms.Run) -> None:
    """Measure every checkpoint of a run, and keep that in its directory."""
    from mnemoscope.analyses.comparison import skill_trajectory

    measure = ms.report.report_of(run.spec.task).trajectory or skill_trajectory
    run.write_trajectory(ms.analyses.over_steps(run, partial(measure, task=run.spec.task, seed=run.spec.seed)))


def _complete(run: ms.Run) -> bool:
    """True if every checkpoint is measured; of the zoo's runs steps are measured whose checkpoints are not shipped."""
    followed = run.trajectory()
    return followed is not None and set(run.steps) <= set(followed.step.values.tolist())


def _read(run: ms.Run) -> xr.Dataset:
    followed = run.trajectory()
    assert followed is not None
    return followed


COMMANDS.add("track", Command(options=Track, run=run, section="train and look", earlier=("follow",)))
