"""A Dask cluster of two workers on this machine against worker processes, and the cost of a task that does nothing."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from mnemoscope.run.cluster import on_scheduler
from mnemoscope.run.executor import analyse_many, train_many
from seeds import N_SEEDS
from steps import published
from timing import Figure, duration, ratio

GROUP = "cluster"
ABSENT = "dask.distributed is not installed here"


def against_processes(repetitions: int, n_steps: int) -> list[Figure]:
    """16 seeds of v3 by two workers of a cluster and by two worker processes, in turns; both have started before."""
    name = f"{N_SEEDS} seeds of v3, {n_steps} steps, a Dask cluster against worker processes"
    if find_spec("distributed") is None:
        return [Figure(group=GROUP, name=name, value=None, unit="x", note=ABSENT)]
    processes, workers = [], []
    with tempfile.TemporaryDirectory() as folder:
        _train(Path(folder) / "first", 2, 1)
        for i in range(repetitions):
            processes.append(_train(Path(folder) / f"processes-{i}", N_SEEDS, n_steps))
            with two_workers():
                workers.append(_train(Path(folder) / f"workers-{i}", N_SEEDS, n_steps))
    value, spread = ratio(workers, processes)
    times = f"processes {duration(median(processes))}, cluster {duration(median(workers))}"
    return [
        Figure(
            group=GROUP,
            name=name,
            value=value,
            unit="x",
            spread=spread if repetitions > 1 else None,
            aim=1.1,
            at_most=True,
            note=f"wall clock, two workers each, started before: {times}",
        )
    ]


def tasks(n: int) -> list[Figure]:
    """Tasks that do nothing, sent and brought back in their order."""
    name = f"a task that does nothing, of {n:,}"
    if find_spec("distributed") is None:
        return [Figure(group=GROUP, name=name, value=None, unit="ms", note=ABSENT)]
    with two_workers():
        start = time.perf_counter()
        assert sum(analyse_many(range(n), abs)) == n * (n - 1) // 2
        seconds = time.perf_counter() - start
    return [
        Figure(
            group=GROUP,
            name=name,
            value=1000 * seconds / n,
            unit="ms",
            aim=20,
            at_most=True,
            note="wall clock, two workers",
        )
    ]


@contextmanager
def two_workers() -> Iterator[None]:
    """A local cluster whose workers have imported everything."""
    with on_scheduler("local", jobs=2):
        with tempfile.TemporaryDirectory() as folder:
            _train(Path(folder), 2, 1)
        yield


def _train(folder: Path, n_seeds: int, n_steps: int) -> float:
    """Seconds in which short runs are trained by two workers."""
    changes = {"recipe.warmup_steps": 0, "recipe.n_steps": n_steps}
    specs = [published("v3", seed, "quick", changes) for seed in range(n_seeds)]
    start = time.perf_counter()
    train_many(specs, [folder / str(seed) for seed in range(n_seeds)], jobs=2)
    return time.perf_counter() - start
