"""Many training runs: one process of one thread per run, or all seeds of a configuration as one program; on the workers
of a Dask cluster within `on_scheduler`.

Workers of this machine are forked from a server that has imported everything once, so a run starts in milliseconds; a
worker that dies is started again and continues from its run's last saved state.
"""

import contextlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import torch

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import usable_device
from mnemoscope.models.run import Run, create_run, open_run
from mnemoscope.run.dask_cluster import client
from mnemoscope.run.server import (
    ATTEMPTS,
    UNGUARDED,
    ended_when_interrupted,
    main_is_guarded,
    n_processes,
    prepare,
    unguarded,
    worker,
    worker_context,
)
from mnemoscope.training.loop import train, train_in_groups
from mnemoscope.training.recorder import Progress, Report
from mnemoscope.training.schedule import check_schedules

S = TypeVar("S")
T = TypeVar("T")


def train_many(
    specs: Sequence[RunSpec],
    paths: Sequence[Path],
    *,
    jobs: int = 1,
    device: str = "cpu",
    report: Report | None = None,
    together: bool | None = None,
) -> list[Run]:
    """Train runs in their directories; finished ones are left alone, interrupted ones continue.

    Each of `specs` has its run directory in `paths`, and the runs come back in the order given. `jobs` are worker
    processes at a time, of one thread each (0: one per core); 1 trains in this process, on one thread. `report` is
    called in this process with every line of metrics of every run. `together` trains runs that differ in the seed only
    as one program (`vmap`) in this process, in groups that fit the memory of a GPU; none: where the device is one.

    Raises InputError where `jobs`, the device, a specification or a directory is refused, or the script that calls this
    starts workers when it is imported; nothing was trained then. Raises RuntimeError where a worker died `ATTEMPTS`
    times; the other runs are finished.
    """
    n, cluster = n_processes(jobs), client()
    together = not device.startswith("cpu") if together is None else together
    if cluster is None:  # workers refuse a device that they do not have
        usable_device(device)
    for spec in specs:
        check_schedules(spec)
    runs = [create_run(Path(path), spec) for spec, path in zip(specs, paths, strict=True)]
    unfinished = [run for run in runs if not run.finished]
    groups = [list(members) for _, members in groupby(unfinished, key=lambda run: run.label if together else run.path)]
    if cluster is not None and groups:
        from mnemoscope.run.dask_training import train_on

        _check_none(train_on(cluster, groups, device, report))
    elif together:
        for members in groups:
            train_in_groups([r.spec for r in members], [r.path for r in members], device=device, report=report)
    elif n == 1 or len(unfinished) < 2:
        with one_thread():
            for run in unfinished:
                train(run.spec, run.path, device=device, report=report)
    else:
        _Workers(unfinished, n, device, report).run()
    return [open_run(run.path) for run in runs]


def analyse_many(runs: Sequence[S], analyse: Callable[[S], T], *, jobs: int = 1) -> Iterator[T]:
    """An analysis mapped over runs (or other work), in their order, by processes of one thread each, or by the workers
    of a Dask cluster within `on_scheduler`.

    `analyse` is a function of a module: it is sent to the workers by name. Of `jobs`, 0 is one per core, and 1 stays in
    this process. Raises InputError where `jobs` is negative or above 1024, or the script that calls this starts workers
    when it is imported.
    """
    n, cluster = min(n_processes(jobs), len(runs)), client()
    if cluster is not None:
        from mnemoscope.run.dask_work import mapped

        return mapped(cluster, analyse, runs)
    return _here(runs, analyse) if n < 2 else _by_workers(runs, analyse, n)


def _here(runs: Sequence[S], analyse: Callable[[S], T]) -> Iterator[T]:
    with one_thread():
        yield from map(analyse, runs)


def _by_workers(runs: Sequence[S], analyse: Callable[[S], T], n: int) -> Iterator[T]:
    with ProcessPoolExecutor(n, worker_context(), initializer=prepare, initargs=(guests.invited(),)) as pool:
        try:
            with ended_when_interrupted():
                yield from pool.map(analyse, runs)
        except BrokenProcessPool:  # it does not tell how the worker ended
            if main_is_guarded():
                raise
            raise unguarded() from None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: what a worker has, so that results do not depend on the number of jobs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_none(failed: Sequence[Path]) -> None:
    if failed:
        names = ", ".join(map(str, failed))
        raise RuntimeError(f"training crashed {ATTEMPTS} times or more in {names}; the other runs are finished")


@dataclass
class _Worker:
    run: Run
    process: BaseProcess
    messages: Connection
    attempt: int


class _Workers:
    """A fixed number of worker processes at work on a list of runs."""

    def __init__(self, runs: list[Run], jobs: int, device: str, report: Report | None):
        self._waiting = [(run, 1) for run in reversed(runs)]
        self._jobs, self._device, self._report = jobs, device, report
        self._active: list[_Worker] = []
        self._failed: list[Path] = []

    def run(self) -> None:
        try:
            while self._waiting or self._active:
                while self._waiting and len(self._active) < self._jobs:
                    self._start(*self._waiting.pop())
                ready = wait([worker.messages for worker in self._active])
                for worker in [worker for worker in self._active if worker.messages in ready]:
                    self._listen(worker)
        finally:
            for worker in self._active:
                worker.process.terminate()
        _check_none(self._failed)

    def _start(self, run: Run, attempt: int) -> None:
        messages, theirs = worker_context().Pipe(duplex=False)
        process = worker(_work, guests.invited(), pickle.dumps(run), self._device, theirs)
        process.start()
        theirs.close()
        self._active.append(_Worker(run, process, messages, attempt))

    def _listen(self, worker: _Worker) -> None:
        """Handle one message, or the end, of a worker."""
        try:
            message = worker.messages.recv()
        except (EOFError, OSError):
            self._end(worker)
            return
        if isinstance(message, InputError | OSError):
            raise message
        if self._report and isinstance(message, Progress):
            self._report(message)

    def _end(self, worker: _Worker) -> None:
        worker.process.join()
        self._active.remove(worker)
        if worker.process.exitcode == UNGUARDED:
            raise unguarded() from None
        if worker.run.finished:
            return
        if worker.attempt < ATTEMPTS:
            self._waiting.append((worker.run, worker.attempt + 1))
        else:
            self._failed.append(worker.run.path)


def _work(invited: Sequence[str], pickled: bytes, device: str, messages: Connection) -> None:
    """Do the work of a worker process: train one run and say how far it is."""
    try:
        prepare(invited)
        run: Run = pickle.loads(pickled)
        train(run.spec, run.path, device=device, report=messages.send)
    except (InputError, OSError) as error:
        messages.send(error)
