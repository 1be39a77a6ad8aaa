"""What a Dask cluster does is what this process does, byte for byte, and what goes wrong there ends nothing for ever.

The first tests take one worker in this process, the thorough ones worker processes of their own, which are killed,
stopped, and refused their disk.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.files import is_held
from mnemoscope.models.run import Run, open_run
from mnemoscope.run import cluster as module
from mnemoscope.run import cluster_training
from mnemoscope.run.cluster import on_scheduler
from mnemoscope.run.cluster_training import read_files
from mnemoscope.run.executor import WorkersDiedError, analyse_many, client, train_many
from mnemoscope.run.sweep import search_sweep
from tests.support import small_spec

FAULTS = pytest.mark.drawn(4, of="faults of workers")
"""Eight tests of half a minute each."""
LONG = {"recipe.n_steps": 400, "recipe.batch_size": 128}
IN_PROCESS = """
class: distributed.LocalCluster
arguments: {processes: false, n_workers: 1, threads_per_worker: 1, dashboard_address: '127.0.0.1:0'}
"""


@pytest.fixture
def one_worker(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(IN_PROCESS)
    with on_scheduler(str(file)):
        yield


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def address(cluster):
    return cluster.scheduler_address


@pytest.fixture
def two_workers(cluster, address):
    with on_scheduler(address):
        try:
            client.get().wait_for_workers(2, timeout=60)  # those that a test has killed are started again
        except TimeoutError:  # seldom one is not, on a machine with much else to do
            cluster.scale(len(cluster.workers) + 1)
            client.get().wait_for_workers(2, timeout=120)
        yield


def everything(run: Run) -> dict[str, object]:
    """All files, the command and versions in run.json too, without the date."""
    files: dict[str, object] = dict(read_files(run.path))
    record = json.loads(files.pop("run.json"))
    del record["created"]
    record.get("digests", {}).pop("run.json", None)  # that of the date too
    return {**files, "run.json": record}


def trained(place: Path, n: int = 2, changes=None, **options) -> list[Run]:
    specs = [small_spec(seed=seed, changes=changes or {}) for seed in range(n)]
    return train_many(specs, [place / str(seed) for seed in range(n)], **options)


def seed_of(run: Run) -> int:
    return run.spec.seed


def refuse(number: int) -> int:
    raise InputError(f"{number} is refused")


def place_of(number: int) -> tuple[int, str, list[str]]:
    return number, os.getcwd(), sys.argv


# ---- one worker in this process


@pytest.mark.usefixtures("one_worker")
@pytest.mark.thorough
def test_a_worker_trains_what_this_process_trains(tmp_path):
    lines = []
    there = trained(tmp_path / "there", report=lines.append)
    assert [line.step for line in lines if line.path.name == "0"] == [0, 10, 20, 30, 40, 50, 60]
    assert len(lines) == 14
    assert not [file.name for file in (tmp_path / "there").iterdir() if file.is_file()], "the mark is gone"
    with on_scheduler_left():
        here = trained(tmp_path / "here")
    assert list(map(everything, there)) == list(map(everything, here))
    assert trained(tmp_path / "there", report=lines.append)[0].finished
    assert len(lines) == 14, "finished runs are left alone"


@contextmanager
def on_scheduler_left():
    """Work stays in this process."""
    token = client.set(None)
    try:
        yield
    finally:
        client.reset(token)


@pytest.mark.usefixtures("one_worker")
@pytest.mark.thorough
def test_runs_that_workers_do_not_see_are_sent_back(tmp_path, monkeypatch):
    with on_scheduler_left():
        here = trained(tmp_path / "here")
        with pytest.raises(ZeroDivisionError):
            trained(tmp_path / "there", report=lambda line: 1 // (30 - line.step))  # leaves the state of step 25
    monkeypatch.setattr(cluster_training, "_mark", lambda groups: NoMark(tmp_path))
    lines = []
    there = trained(tmp_path / "there", report=lines.append)
    assert list(map(everything, there)) == list(map(everything, here))
    assert {line.path for line in lines} == {run.path for run in there}
    assert min(line.step for line in lines if line.path == there[0].path) == 30, "it continues"


class NoMark:
    """A mark that is nowhere."""

    def __init__(self, place):
        self.mark = place / "nowhere"

    def __enter__(self):
        return self.mark

    def __exit__(self, *error):
        pass


@pytest.mark.usefixtures("one_worker")
@pytest.mark.full
def test_together_is_together_there(tmp_path):
    there = trained(tmp_path / "there", together=True)
    with on_scheduler_left():
        here = trained(tmp_path / "here", together=True)
    assert list(map(everything, there)) == list(map(everything, here))


@pytest.mark.usefixtures("one_worker")
def test_results_come_in_order_and_errors_as_they_are(tiny, monkeypatch):
    monkeypatch.setattr(module, "AHEAD", 3)
    assert list(analyse_many([tiny, tiny], seed_of)) == [0, 0]
    assert list(analyse_many(range(20), abs)) == list(range(20))
    assert list(analyse_many([], abs)) == []
    with pytest.raises(InputError, match=r"^[12] is refused"):  # a worker may begin with either
        list(analyse_many([1, 2], refuse))


@pytest.mark.usefixtures("one_worker")
def test_paths_and_the_command_are_those_of_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mnemoscope", "train"])
    assert list(analyse_many([5], place_of)) == [(5, str(tmp_path), ["mnemoscope", "train"])]


@pytest.mark.usefixtures("one_worker")
def test_workers_with_other_code_are_refused(monkeypatch):
    monkeypatch.setattr(module, "make_order", partial(other_order, module.make_order))
    with pytest.raises(
        InputError, match="and this process mnemoscope 0; install the same on both, and start the worker"
    ):
        list(analyse_many([1], abs))


def other_order(original, function, topic):
    from dataclasses import replace

    return replace(original(function, topic), code="mnemoscope 0")


@pytest.mark.usefixtures("one_worker")
def test_training_stops_when_nobody_waits_for_it_any_more(tmp_path):
    changes = {"recipe.n_steps": 20_000, "recipe.checkpoint_steps": ()}
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, 1, changes, report=lambda line: 1 // (20 - line.step))
    until = monotonic() + 300
    while is_held(tmp_path / "0") and monotonic() < until:
        sleep(0.05)
    assert not is_held(tmp_path / "0")
    assert not open_run(tmp_path / "0").finished


def size_of(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.usefixtures("one_worker")
def test_a_worker_that_does_not_see_a_file_says_so(tmp_path):
    with pytest.raises(InputError, match=f"does not find {tmp_path / 'nowhere'}; what is analysed on a Dask cluster"):
        list(analyse_many([tmp_path / "nowhere"], size_of))


# ---- worker processes


@FAULTS
@pytest.mark.thorough
@pytest.mark.usefixtures("two_workers")
def test_worker_processes_train_what_this_process_trains(tmp_path):
    lines = []
    there = trained(tmp_path / "there", 3, report=lines.append)
    with on_scheduler_left():
        here = trained(tmp_path / "here", 3)
    assert list(map(everything, there)) == list(map(everything, here))
    assert len(lines) == 21
    assert list(analyse_many(there, seed_of)) == [0, 1, 2]


@FAULTS
@pytest.mark.thorough
@pytest.mark.usefixtures("two_workers")
def test_a_search_goes_through_the_same_runs(tmp_path, monkeypatch):
    from mnemoscope.cli.commands.train import read_sweep
    from tests.cli.test_sweep import SEARCH

    monkeypatch.chdir(tmp_path)
    Path("search.yaml").write_text(SEARCH, encoding="utf-8")
    sweep = read_sweep(Path("search.yaml"))
    there = search_sweep(sweep, Path("there"))
    with on_scheduler_left():
        here = search_sweep(sweep, Path("here"))
    assert there.identical(here)
    runs = [
        [everything(open_run(file.parent)) for file in sorted(Path(place).rglob("run.json"))]
        for place in ("there", "here")
    ]
    assert runs[0] == runs[1]


def worker_at_work() -> int:
    """The process of a worker that has something to do."""
    pids = client.get().run(os.getpid)
    busy = [address for address, keys in client.get().processing().items() if keys]
    return pids[busy[0]]


@FAULTS
@pytest.mark.thorough
@pytest.mark.usefixtures("two_workers")
def test_a_worker_killed_in_a_training_is_replaced(tmp_path):
    killed = []

    def kill_once(line):
        if line.step >= 40 and not killed:
            killed.append(worker_at_work())
            os.kill(killed[0], signal.SIGKILL)

    there = trained(tmp_path / "there", 3, LONG, report=kill_once)
    assert killed
    with on_scheduler_left():
        here = trained(tmp_path / "here", 3, LONG)
    assert list(map(everything, there)) == list(map(everything, here))


def end_process(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@FAULTS
@pytest.mark.thorough
@pytest.mark.usefixtures("two_workers")
def test_what_kills_every_worker_is_told(tmp_path):
    with pytest.raises(WorkersDiedError, match="4 workers died of it"):
        list(analyse_many([0], end_process))


@FAULTS
@pytest.mark.thorough
def test_a_stopped_worker_counts_as_dead_in_time():
    import dask
    import distributed

    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "20s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        on_scheduler(cluster.scheduler_address),
    ):
        client.get().wait_for_workers(2, timeout=300)
        stopped, working = client.get().run(os.getpid).values()
        os.kill(stopped, signal.SIGSTOP)
        try:
            found = list(analyse_many(range(12), process_of))
        finally:
            with suppress(ProcessLookupError):  # the one that looks after it has killed it
                os.kill(stopped, signal.SIGCONT)
        assert len(found) == 12
        assert working in found
        assert stopped not in found


def process_of(number: int) -> int:
    sleep(0.05)
    return os.getpid()


def allow_files_of(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@FAULTS
@pytest.mark.thorough
@pytest.mark.usefixtures("two_workers")
def test_a_full_disk_ends_the_command_in_a_line_and_the_same_command_continues(tmp_path):
    client.get().run(allow_files_of, 20_000)  # less than a checkpoint
    with pytest.raises(OSError, match="File too large"):
        trained(tmp_path / "there")
    client.get().run(allow_files_of, resource.RLIM_INFINITY)
    assert not list((tmp_path / "there").rglob("*.part"))
    there = trained(tmp_path / "there")
    with on_scheduler_left():
        here = trained(tmp_path / "here")
    assert list(map(everything, there)) == list(map(everything, here))


class Processes:
    """A scheduler and a worker, each a process that was started by its own command."""

    def __init__(self, port: int):
        self.address = f"tcp://127.0.0.1:{port}"
        self.port, self.started = port, []

    def start(self, part: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", part, *words]
        self.started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        return self.started[-1]

    def scheduler(self) -> subprocess.Popen[bytes]:
        process = self.start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        until = monotonic() + 300
        while monotonic() < until:
            try:
                with on_scheduler(self.address):
                    return process
            except InputError:
                sleep(0.2)
        raise AssertionError("the scheduler did not start")

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", self.address, "--nthreads", "1", "--no-dashboard")


@pytest.fixture
def processes():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    found = Processes(port)
    yield found
    for process in found.started:
        process.kill()
        process.wait()


@FAULTS
@pytest.mark.thorough
def test_a_lost_scheduler_ends_the_command_in_a_line_and_the_same_command_continues(tmp_path, processes):
    scheduler = processes.scheduler()
    processes.worker()

    def lose(line):
        if line.step >= 40 and scheduler.poll() is None:
            scheduler.kill()
            scheduler.wait()

    with on_scheduler(processes.address), pytest.raises(InputError, match="was lost; what is finished is kept"):
        trained(tmp_path / "there", 2, LONG, report=lose)
    processes.scheduler()
    processes.worker()
    with on_scheduler(processes.address):
        there = trained(tmp_path / "there", 2, LONG)
    here = trained(tmp_path / "here", 2, LONG)
    assert list(map(everything, there)) == list(map(everything, here))


@FAULTS
@pytest.mark.thorough
def test_a_scheduler_that_comes_back_is_asked_again(tmp_path, processes):
    scheduler = processes.scheduler()
    processes.worker()
    asked = []

    def restart(line):
        if line.step >= 40 and not asked:
            asked.append(line)
            scheduler.kill()
            scheduler.wait()
            processes.start("scheduler", "--host", "127.0.0.1", "--port", str(processes.port), "--no-dashboard")
            processes.worker()

    with on_scheduler(processes.address):
        there = trained(tmp_path / "there", 2, LONG, report=restart)
    here = trained(tmp_path / "here", 2, LONG)
    assert list(map(everything, there)) == list(map(everything, here))
