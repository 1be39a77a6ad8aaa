"""The number of worker processes, and the server that they are forked from: it imports the training loop once, for all
of them. Where processes cannot be forked, as on Windows, every worker imports it for itself.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

MAX_PROCESSES = 1024
"""More worker processes than this are taken for a slip of the pen."""
MAX_ON_WINDOWS = 61
"""So many processes can be waited for at once there."""
ATTEMPTS = 3
"""The number of times that work is started before the deaths of its workers are reported."""
UNGUARDED = 87
"""Exit code of a worker that was about to start workers itself while it imported the user's script."""


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
    context.set_forkserver_preload(["mnemoscope.run.local"])
    _start_server()
    return context


def _start_server() -> None:
    """Start the server unless it runs. An interrupt from the keyboard reaches all processes: neither the server nor the
    workers, which inherit that, say anything to it; this process ends them (`ended_when_interrupted`).
    """
    from multiprocessing import forkserver

    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def ended_when_interrupted() -> Iterator[None]:
    """End the worker processes that were started in between if this one is interrupted from the keyboard."""
    before = multiprocessing.active_children()
    try:
        yield
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            if process not in before:
                process.terminate()
        raise


def prepare(invited: Sequence[str]) -> None:
    """Start a worker: one thread, and guests are there before anything of theirs is unpickled."""
    import torch

    torch.set_num_threads(1)
    for source in invited:
        guests.invite(source)


def worker(target: Callable[..., object], *arguments: object) -> BaseProcess:
    """A process of that context, not started yet; it ends with this one."""
    context = worker_context()
    return context.Process(target=target, args=arguments, daemon=True)  # pyright: ignore[reportAttributeAccessIssue]


def _can_fork() -> bool:
    return "forkserver" in multiprocessing.get_all_start_methods()


def unguarded() -> InputError:
    """The message about a script that starts workers whenever it is imported."""
    script = getattr(sys.modules["__main__"], "__file__", None) or "the script"
    return InputError(
        f"worker processes import {script}, which starts workers when it is imported; put the call that has jobs, and "
        'all that need not run in every worker, under `if __name__ == "__main__":`, or take jobs=1'
    )


def main_is_guarded() -> bool:
    """True if a worker can be started: tries it with one that does nothing."""
    process = worker(_nothing)
    process.start()
    process.join()
    return process.exitcode != UNGUARDED


def _nothing() -> None:
    pass


def start_early() -> None:
    """Let the server import while this process imports too: the workers are then ready seconds sooner."""
    if _can_fork():
        worker_context()
