"""The server that worker processes are forked from: it imports the training loop once, for all of them."""

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext


def worker_context() -> ForkServerContext:
    """The context that worker processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mnemoscope.sweeps.local"])
    return context


def start_early() -> None:
    """Let the server import while this process imports too: the workers are then ready seconds sooner."""
    worker_context()
    forkserver.ensure_running()
