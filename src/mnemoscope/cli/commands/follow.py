"""`mnemoscope follow`."""

from collections.abc import Sequence
from functools import partial

import xarray as xr

from mnemoscope.analyses.dynamics.trajectories import over_steps
from mnemoscope.analyses.evaluation import skill_trajectory
from mnemoscope.analyses.stacking import along_seed
from mnemoscope.cli.output import console, show
from mnemoscope.cli.run_options import Follow
from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.sweeps.local import analyse_many
from mnemoscope.viz.followed import ONSET_HEADER, onset_rows
from mnemoscope.viz.reporting import report_of


def run(options: Follow) -> None:
    """Measure what is not measured yet, and print onsets."""
    runs = find_runs(options.runs)
    finished = [run for run in runs if run.finished]
    if len(finished) < len(runs):
        console.print(f"{len(runs) - len(finished)} runs are not finished and left out", highlight=False)
    if not finished:
        raise InputError("none of the runs is finished; `mnemoscope train` continues them")
    follow_all(finished, options.jobs)


def follow_all(runs: Sequence[Run], jobs: int) -> None:
    """Measure checkpoints of runs that lack it and keep that with each run; print onsets by configuration."""
    missing = [run for run in runs if not _complete(run)]
    with console.status("") as status:
        for n, _ in enumerate(analyse_many(missing, follow_run, jobs=jobs)):
            status.update(f"followed {n + 1} of {len(missing)} runs")
    console.print(f"followed {len(missing)} runs; {len(runs) - len(missing)} were complete", highlight=False)
    for label, group in by_label(runs).items():
        followed = along_seed(group, [_read(run) for run in group])
        show(f"{label}, {len(group)} seeds: when measures set in", ONSET_HEADER, onset_rows(followed))


def follow_run(run: Run) -> None:
    """Measure every checkpoint of a run, and keep that in its directory."""
    measure = report_of(run.spec.task).trajectory or skill_trajectory
    run.write_trajectory(over_steps(run, partial(measure, task=run.spec.task, seed=run.spec.seed)))


def _complete(run: Run) -> bool:
    """Whether every checkpoint is measured; of the zoo's runs steps are measured whose checkpoints are not shipped."""
    followed = run.trajectory()
    return followed is not None and set(run.steps) <= set(followed.step.values.tolist())


def _read(run: Run) -> xr.Dataset:
    followed = run.trajectory()
    assert followed is not None
    return followed
