"""How many worker processes there are, and the server that they are forked from: it imports the training loop once,
for all of them.
"""

import multiprocessing
import os
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


def worker_context() -> ForkServerContext:
    """The context that worker processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mnemoscope.sweeps.local"])
    return context


def start_early() -> None:
    """Let the server import while this process imports too: the workers are then ready seconds sooner."""
    worker_context()
    forkserver.ensure_running()
