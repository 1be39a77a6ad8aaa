"""Many runs through one `map`: worker processes of this machine, or those of a Dask cluster within `on_scheduler`.

Every worker has one thread and does one piece at a time. A piece whose worker dies is given to another one, up to
`ATTEMPTS` times; training continues from the last saved state. Processes are forked from a server that has imported
everything once, so that work starts in milliseconds; where processes cannot be forked, as on Windows, they are spawned.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

if TYPE_CHECKING:  # what takes torch along is imported by functions: the number of jobs is refused without it
    from mnemoscope.core.specification import RunSpec
    from mnemoscope.models.run import Run
    from mnemoscope.run.cluster import Workers
    from mnemoscope.training.recorder import Report

S = TypeVar("S")
T = TypeVar("T")

MAX_PROCESSES = 1024
"""More worker processes than this are taken for a slip of the pen."""
MAX_ON_WINDOWS = 61
"""So many processes can be waited for at once there."""
ATTEMPTS = 3
"""The number of times that a piece of work is started before the deaths of its workers are reported."""
UNGUARDED = 87
"""Exit code of a worker that was about to start workers itself while it imported the user's script."""
POLLED_EVERY = 0.02
"""Seconds between two looks at what workers say while they work."""

client: ContextVar[Any] = ContextVar("client", default=None)
"""The `distributed.Client` that work goes to within `on_scheduler`; None: it stays on this machine."""


class WorkersDiedError(BrokenProcessPool):
    """The workers that did a piece died, one after the other."""

    attempts = 1
    """The number of `ATTEMPTS` that this death uses up."""


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
    starts workers when it is imported; nothing was trained then. Raises RuntimeError where workers died of a run
    `ATTEMPTS` times; the other runs are finished.

    >>> short = {"recipe.n_steps": 4, "recipe.warmup_steps": 1}
    >>> specs = [ms.preset("v3", seed=seed, changes=short) for seed in (0, 1)]
    >>> [each.last_step for each in ms.train_many(specs, [Path("runs/0"), Path("runs/1")])]
    [4, 4]
    """
    from mnemoscope.models.building import usable_device
    from mnemoscope.models.run import create_run, open_run
    from mnemoscope.training.loop import train_in_groups
    from mnemoscope.training.schedule import check_schedules

    n, scheduler = n_processes(jobs), client.get()
    together = not device.startswith("cpu") if together is None else together
    if scheduler is None:  # workers refuse a device that they do not have
        usable_device(device)
    for spec in specs:
        check_schedules(spec)
    runs = [create_run(Path(path), spec) for spec, path in zip(specs, paths, strict=True)]
    unfinished = [run for run in runs if not run.finished]
    groups = [list(members) for _, members in groupby(unfinished, key=lambda run: run.label if together else run.path)]
    hear = report or (lambda line: None)
    if scheduler is not None and groups:
        from mnemoscope.run.cluster_training import train_groups

        _raise_failed(train_groups(scheduler, groups, device, hear))
    elif together:
        for members in groups:
            train_in_groups([r.spec for r in members], [r.path for r in members], device=device, report=report)
    elif n == 1 or len(unfinished) < 2:
        with one_thread():
            for run in unfinished:
                _train_run(device, run, hear)
    else:
        outcomes = iter_results(Processes(n, partial(_train_run, device), tells=True), unfinished, hear)
        _raise_failed([unfinished[place].path for place, outcome in outcomes if isinstance(outcome, WorkersDiedError)])
    return [open_run(run.path) for run in runs]


def _train_run(device: str, run: Run, tell: Report) -> None:
    from mnemoscope.training.loop import train

    train(run.spec, run.path, device=device, report=tell)


def _raise_failed(failed: Sequence[Path]) -> None:
    if failed:
        names = ", ".join(map(str, failed))
        raise RuntimeError(f"training crashed {ATTEMPTS} times or more in {names}; the other runs are finished")


def analyse_many(runs: Sequence[S], analyse: Callable[[S], T], *, jobs: int = 1) -> Iterator[T]:
    """An analysis mapped over runs (or other work), in their order, by processes of one thread each, or by the workers
    of a Dask cluster within `on_scheduler`.

    `analyse` is a function of a module: it is sent to the workers by name. Of `jobs`, 0 is one per core, and 1 stays in
    this process. Raises InputError where `jobs` is negative or above 1024, the script that calls this starts workers
    when it is imported, or a scheduler was lost; DiedError, a RuntimeError, where workers die of a piece.
    """
    n, scheduler = min(n_processes(jobs), len(runs)), client.get()
    if scheduler is not None:
        from mnemoscope.run.cluster import Workers

        return _sort_results(iter_results(Workers(scheduler, analyse), runs))
    return _analyse_here(runs, analyse) if n < 2 else _sort_results(iter_results(Processes(n, analyse), runs))


def _analyse_here(runs: Sequence[S], analyse: Callable[[S], T]) -> Iterator[T]:
    with one_thread():
        yield from map(analyse, runs)


def _sort_results(outcomes: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    early: dict[int, Any] = {}
    following = 0
    with contextlib.closing(outcomes):  # pyright: ignore[reportArgumentType]
        for place, outcome in outcomes:
            if isinstance(outcome, WorkersDiedError):
                raise outcome
            early[place] = outcome
            while following in early:
                yield early.pop(following)
                following += 1


def iter_results(
    executor: Processes | Workers, pieces: Sequence[Any], hear: Callable[[Any], None] | None = None
) -> Iterator[tuple[int, Any]]:
    """Results with the places of their pieces, as they come; DiedError in place of that of a piece workers die of.

    `hear` is called in this thread with what workers tell. Raises InputError where the scheduler of a cluster was lost.
    """
    waiting, running = deque(range(len(pieces))), dict[Future[Any], int]()
    attempts = Counter[int]()
    try:
        while waiting or running:
            while waiting and len(running) < executor.n_ahead:
                place = waiting.popleft()
                running[executor.submit(pieces[place])] = place
            done, _ = wait(running, None if hear is None else POLLED_EVERY, FIRST_COMPLETED)
            if hear is not None:
                for message in executor.messages():
                    hear(message)
            for future in done:
                place = running.pop(future)
                try:
                    outcome = executor.result(future)
                except WorkersDiedError as error:
                    attempts[place] += error.attempts
                    if attempts[place] < ATTEMPTS:
                        waiting.append(place)
                        continue
                    outcome = error
                yield place, outcome
    finally:
        executor.stop()


class Processes:
    """Worker processes, each a pool of one: a worker that dies takes no other's work along."""

    def __init__(self, n: int, function: Callable[..., Any], *, tells: bool = False):
        """With `tells`, `function` takes a function besides the piece, to tell this process something."""
        self.n_ahead = n  # pieces that it takes at a time
        self._function, self._tells = function, tells
        self._idle: list[_Worker] = []
        self._at_work: dict[Future[Any], _Worker] = {}

    def submit(self, piece: Any) -> Future[Any]:
        """Hand a piece to a worker that is idle, or to a new one."""
        worker = self._idle.pop() if self._idle else _Worker()
        future = worker.submit(self._function, piece, self._tells)
        self._at_work[future] = worker
        return future

    def result(self, future: Future[Any]) -> Any:
        """The result of a piece, or the error of the function.

        Raises DiedError where the worker ended; InputError where it could not import the user's script.
        """
        worker = self._at_work.pop(future)
        if not isinstance(future.exception(), BrokenProcessPool):
            self._idle.append(worker)
            return future.result()
        if (code := worker.exit_code()) == UNGUARDED:
            raise unguarded_script_error()
        raise WorkersDiedError(f"{ATTEMPTS} worker processes died of it, the last with exit code {code}")

    def messages(self) -> Iterator[Any]:
        """Messages of the workers since the last call."""
        for worker in self._at_work.values():
            with contextlib.suppress(EOFError, OSError):  # it has died: its result says so
                while worker.messages.poll():
                    yield worker.messages.recv()

    def stop(self) -> None:
        """End all workers, those at work too."""
        for worker in (*self._idle, *self._at_work.values()):
            worker.stop()


class _Worker:
    """A process of its own, started with its first piece."""

    def __init__(self) -> None:
        context = worker_context()
        self.messages, self._theirs = context.Pipe(duplex=False)
        initial = (guests.invited_sources(), self._theirs)
        self._pool = ProcessPoolExecutor(1, context, initializer=_start_worker, initargs=initial)
        self._process: BaseProcess | None = None

    def submit(self, *work: Any) -> Future[Any]:
        before = set(multiprocessing.active_children()) if self._process is None else set()
        future = self._pool.submit(_run_piece, *work)
        if self._process is None:
            (self._process,) = set(multiprocessing.active_children()) - before or {None}
            self._theirs.close()
        return future

    def exit_code(self) -> int | None:
        """The exit code of the process, which has ended; None where it ended before it was seen."""
        if self._process is None:
            return None
        self._process.join()
        return self._process.exitcode

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
        self._pool.shutdown(cancel_futures=True)
        self.messages.close()


_messages: Connection | None = None


def _start_worker(invited: Sequence[str], messages: Connection) -> None:
    global _messages
    _messages = messages
    prepare_worker(invited)


def _run_piece(function: Callable[..., Any], piece: Any, tells: bool) -> Any:
    assert _messages is not None
    return function(piece, _messages.send) if tells else function(piece)


def prepare_worker(invited: Sequence[str]) -> None:
    """Start a worker: one thread, and guests are there before anything of theirs is unpickled."""
    import torch

    torch.set_num_threads(1)
    for source in invited:
        guests.invite(source)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: what a worker has, so that results do not depend on the number of jobs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- the processes of this machine


def n_processes(jobs: int) -> int:
    """The number of worker processes that `jobs` asks for, 0 for one per core; no more than `MAX_PROCESSES`."""
    if not 0 <= jobs <= MAX_PROCESSES:
        raise InputError(f"jobs must be from 1 to {MAX_PROCESSES}, or 0 for one process per core; got {jobs!r}")
    return min(jobs or n_cores(), MAX_ON_WINDOWS if sys.platform == "win32" else MAX_PROCESSES)


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_context() -> BaseContext:
    """The context that worker processes come from.

    A worker imports the script that it was started by. If that asks for workers again, as it does without a guard, the
    worker ends here without a word, and the process that started it tells the user (`unguarded`).
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)
    if not _can_fork():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mnemoscope.training.loop", "mnemoscope.run.executor"])
    _start_server()
    return context


def _start_server() -> None:
    """Start the server unless it runs. An interrupt from the keyboard reaches all processes: neither the server nor the
    workers, which inherit that, say anything to it; this process ends them (`Processes.stop`).
    """
    from multiprocessing import forkserver

    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def _can_fork() -> bool:
    return "forkserver" in multiprocessing.get_all_start_methods()


def unguarded_script_error() -> InputError:
    """The message about a script that starts workers whenever it is imported."""
    script = getattr(sys.modules["__main__"], "__file__", None) or "the script"
    return InputError(
        f"worker processes import {script}, which starts workers when it is imported; put the call that has jobs, and "
        'all that need not run in every worker, under `if __name__ == "__main__":`, or take jobs=1'
    )


def preload_server() -> None:
    """Let the server import while this process imports too: the workers are then ready seconds sooner."""
    if _can_fork():
        worker_context()
