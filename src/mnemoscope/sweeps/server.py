"""How many worker processes there are, and the server that they are forked from: it imports the training loop once,
for all of them.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from mnemoscope.core.errors import InputError

MAX_PROCESSES = 1024
"""More worker processes than this are taken for a slip of the pen."""


def n_processes(jobs: int) -> int:
    """The number of worker processes that `jobs` asks for: as many as it says, or one per core if it is 0.

    Raises:
        InputError: `jobs` is negative or above `MAX_PROCESSES`.
    """
    if not 0 <= jobs <= MAX_PROCESSES:
        raise InputError(f"jobs must be from 1 to {MAX_PROCESSES}, or 0 for one process per core; got {jobs!r}")
    return jobs or n_cores()


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


UNGUARDED = 87
"""Exit code of a worker that was about to start workers itself while it imported the user's script."""


def worker_context() -> ForkServerContext:
    """The context that worker processes come from.

    A worker imports the script that it was started by. If that asks for workers again, as it does without a guard, the
    worker ends here without a word, and the process that started it tells the user (`unguarded`).
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mnemoscope.sweeps.local"])
    return context


def unguarded() -> InputError:
    """What the user is told about a script that starts workers whenever it is imported."""
    script = getattr(sys.modules["__main__"], "__file__", None) or "the script"
    return InputError(
        f"worker processes import {script}, which starts workers when it is imported; put the call that has jobs, and "
        'all that need not run in every worker, under `if __name__ == "__main__":`, or take jobs=1'
    )


def main_is_guarded() -> bool:
    """Whether a worker can be started: tries it with one that does nothing."""
    process = worker_context().Process(target=_nothing)
    process.start()
    process.join()
    return process.exitcode != UNGUARDED


def _nothing() -> None:
    pass


def start_early() -> None:
    """Let the server import while this process imports too: the workers are then ready seconds sooner."""
    worker_context()
    forkserver.ensure_running()
