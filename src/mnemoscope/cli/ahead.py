"""Measurements for a later trial, taken with the time that other processes leave over.

A training leaves cores idle at its start and its end, and so does whoever writes a page. A process that yields to all
others measures the zoo meanwhile; the trial finds in its store what is done. Results do not depend on it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.trials import run_trials
from mnemoscope.cli.trials import claims_for_zoo
from mnemoscope.core import guests
from mnemoscope.models.run import find_runs
from mnemoscope.run.executor import client, n_processes, prepare_worker, worker_context

LEAST_URGENT = 19
"""The niceness of a process that runs where no other wants to."""


@contextmanager
def zoo_measured_ahead(ids: Sequence[str], store: Path, *, jobs: int) -> Iterator[None]:
    """Measure the zoo for claims within this context, in one process more than `jobs`, which may be ended at any time.

    Nothing is measured without claims, with one job, or where a Dask cluster does the work.
    """
    if not ids or n_processes(jobs) == 1 or client.get() is not None:
        yield
        return
    wanted = (tuple(ids), store.absolute(), guests.invited_sources())
    process = worker_context().Process(target=_measure_zoo, args=wanted, daemon=True)  # pyright: ignore[reportAttributeAccessIssue]
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _measure_zoo(ids: Sequence[str], store: Path, invited: Sequence[str]) -> None:
    if hasattr(os, "nice"):
        os.nice(LEAST_URGENT)
    prepare_worker(invited)
    with suppress(Exception):  # the trial meets it again, and reports it
        zoo = find_runs([Path("zoo")])
        claims, _ = claims_for_zoo([CLAIMS.get(id) for id in ids], zoo)
        run_trials(claims, zoo, sensitivity=False, emergence=False, store=store)
