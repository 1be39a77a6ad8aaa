"""Training on the workers of a Dask cluster: in the run directories where workers see them, and otherwise in a
directory of the worker, whose files are sent back at the end.

A run that is sent back starts from what this machine has of it. What its worker had written is lost with the worker,
and the next one starts from there again.
"""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from mnemoscope.models.files import HOLDER, LEASE, NAME, RunHeldError, hold, write_atomically
from mnemoscope.models.run import Run
from mnemoscope.run.dask_work import DiedError, as_they_come
from mnemoscope.training.loop import train_in_groups
from mnemoscope.training.recorder import Progress, Report

Tell = Callable[[Progress], None]
Files = Mapping[str, bytes]
"""The content of files by their paths in the run directory."""

LOCKED_FOR = 2 * LEASE
"""Seconds that a worker waits for a run that another process holds, which may be dead."""
ASKED_EVERY = 2.0
LAST = "done"
"""Written when everything else is there."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A run with what there is of it."""

    run: Run
    files: Files


def train_on(client: Any, groups: Sequence[Sequence[Run]], device: str, report: Report | None) -> list[Path]:
    """Train groups of runs, each as one program, and return the directories of runs that workers died of.

    The other runs are finished. Raises InputError as `as_they_come` does, or where a worker refuses the device or a
    directory; OSError where a directory cannot be written to, such as on a full disk.
    """
    failed: list[Path] = []
    unseen: list[Sequence[Run]] = []
    heard = report or (lambda line: None)
    with _mark(groups) as mark:
        for place, seen in as_they_come(client, partial(train_there, mark, device), groups, heard):
            if isinstance(seen, DiedError):
                failed += [run.path for run in groups[place]]
            elif not seen:
                unseen.append(groups[place])
    if unseen:
        failed += _train_and_gather(client, unseen, device, heard)
    return failed


def _train_and_gather(
    client: Any, groups: Sequence[Sequence[Run]], device: str, heard: Callable[[Progress], None]
) -> list[Path]:
    failed: list[Path] = []
    with ExitStack() as locks:
        for run in (run for group in groups for run in group):
            locks.enter_context(hold(run.path))
        sent = [[Sent(run=run, files=files_of(run.path)) for run in group] for group in groups]
        for place, returned in as_they_come(client, partial(train_and_send, device), sent, heard):
            if isinstance(returned, DiedError):
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


def train_there(mark: Path, device: str, runs: Sequence[Run], tell: Tell) -> bool:
    """Train runs in their directories; whether this machine sees them.

    A run that another process holds is waited for: a worker that was lost may not be dead yet.
    """
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


def train_and_send(device: str, runs: Sequence[Sent], tell: Tell) -> list[Files]:
    """Train runs in a directory of this machine; their files."""
    with tempfile.TemporaryDirectory(prefix="mnemoscope-") as directory:
        here = {Path(directory) / str(i): sent for i, sent in enumerate(runs)}
        for path, sent in here.items():
            write_files(path, sent.files)

        def told(line: Progress) -> None:
            tell(replace(line, path=here[line.path].run.path))

        train_in_groups([sent.run.spec for sent in runs], list(here), device=device, report=told)
        return [files_of(path) for path in here]


def files_of(path: Path) -> Files:
    """All that lies in a run directory, but for what says who holds it."""
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name not in (NAME, HOLDER))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in found}


def write_files(path: Path, files: Files) -> None:
    """Write a run directory; whoever sees that it is finished sees everything."""
    for name in sorted(files, key=lambda name: name == LAST):
        write_atomically(path / name, files[name])
