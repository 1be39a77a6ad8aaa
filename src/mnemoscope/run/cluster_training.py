"""Training on the workers of a Dask cluster.

It goes on in the run directories where workers see them. Elsewhere it goes on in a directory of the worker: that starts
from the files which this machine has of the run, and sends all back at the end.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mnemoscope.models.files import HOLDER_FILE, LEASE, LOCK_FILE, RunHeldError, hold_directory, write_atomically
from mnemoscope.run.cluster import Workers
from mnemoscope.run.executor import WorkersDiedError, iter_results

if TYPE_CHECKING:
    from mnemoscope.models.run import Run
    from mnemoscope.training.recorder import Progress, Report

LOCKED_FOR = 2 * LEASE
"""Seconds that a worker waits for a run that another process holds, which may be dead."""
ASKED_EVERY = 2.0
LAST = "done"
"""Written when everything else of a run is there."""

Files = Mapping[str, bytes]
"""The content of files by their paths in the run directory."""


def train_groups(scheduler: Any, groups: Sequence[Sequence[Run]], device: str, hear: Report) -> list[Path]:
    """Train groups of runs, each as one program, and return the directories of runs that workers died of.

    The other runs are finished. Raises InputError where the scheduler is lost, or a worker refuses the device or a
    directory; OSError where a directory cannot be written to, such as on a full disk.
    """
    failed: list[Path] = []
    unseen: list[Sequence[Run]] = []
    with _mark(groups) as mark:
        workers = Workers(scheduler, partial(train_in_place, mark, device), tells=True)
        for place, seen in iter_results(workers, groups, hear):
            if isinstance(seen, WorkersDiedError):
                failed += [run.path for run in groups[place]]
            elif not seen:
                unseen.append(groups[place])
    return failed + _train_remotely(scheduler, unseen, device, hear) if unseen else failed


def _train_remotely(scheduler: Any, groups: Sequence[Sequence[Run]], device: str, hear: Report) -> list[Path]:
    failed: list[Path] = []
    with ExitStack() as locks:
        for run in (run for group in groups for run in group):
            locks.enter_context(hold_directory(run.path))
        sent = [[(run, read_files(run.path)) for run in group] for group in groups]
        workers = Workers(scheduler, partial(train_and_send, device), tells=True)
        for place, returned in iter_results(workers, sent, hear):
            if isinstance(returned, WorkersDiedError):
                failed += [run.path for run in groups[place]]
                continue
            for run, files in zip(groups[place], returned, strict=True):
                write_files(run.path, files)
    return failed


@contextmanager
def _mark(groups: Sequence[Sequence[Run]]) -> Iterator[Path]:
    """A file beside the runs, by which workers tell whether they see this file system."""
    common = Path(os.path.commonpath([run.path.absolute() for group in groups for run in group]))
    mark = common / f".seen-by-{socket.gethostname()}-{uuid4().hex}"
    write_atomically(mark, b"")
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def train_in_place(mark: Path, device: str, runs: Sequence[Run], tell: Report) -> bool:
    """Train runs in their directories; returns False where this machine does not see them.

    A run that another process holds is waited for: a worker that was lost may not be dead yet.
    """
    from mnemoscope.training.loop import train_in_groups

    if not mark.exists():
        return False
    until = monotonic() + LOCKED_FOR
    while True:
        try:
            train_in_groups([run.spec for run in runs], [run.path for run in runs], device=device, report=tell)
        except RunHeldError:
            if monotonic() > until:
                raise
            sleep(ASKED_EVERY)
        else:
            return True


def train_and_send(device: str, runs: Sequence[tuple[Run, Files]], tell: Report) -> list[Files]:
    """Train runs in a directory of this machine, and return their files."""
    from mnemoscope.training.loop import train_in_groups

    with tempfile.TemporaryDirectory(prefix="mnemoscope-") as directory:
        here = {Path(directory) / str(i): run for i, (run, _) in enumerate(runs)}
        for path, (_, files) in zip(here, runs, strict=True):
            write_files(path, files)

        def tell_there(line: Progress) -> None:
            tell(replace(line, path=here[line.path].path))

        train_in_groups([run.spec for run, _ in runs], list(here), device=device, report=tell_there)
        return [read_files(path) for path in here]


def read_files(path: Path) -> Files:
    """All that lies in a run directory, but for what says who holds it."""
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name not in (LOCK_FILE, HOLDER_FILE))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in found}


def write_files(path: Path, files: Files) -> None:
    """Write a run directory; whoever sees that it is finished sees everything."""
    for name in sorted(files, key=lambda name: name == LAST):
        write_atomically(path / name, files[name])
