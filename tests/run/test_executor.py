import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from mnemoscope.claims.trials import run_trials
from mnemoscope.core.errors import InputError
from mnemoscope.models.files import HOLDER_FILE
from mnemoscope.models.run import Run
from mnemoscope.run import executor
from mnemoscope.run.executor import UNGUARDED, WorkersDiedError, analyse_many, train_many
from tests.support import small_spec


def digests(run: Run) -> dict[str, bytes]:
    return {str(f.relative_to(run.path)): f.read_bytes() for f in run.path.rglob("*") if f.suffix == ".safetensors"}


@pytest.mark.thorough
def test_workers_train_what_one_process_trains(tmp_path):
    specs = [small_spec(seed=seed) for seed in (0, 1)]
    alone = train_many(specs, [tmp_path / "a0", tmp_path / "a1"])
    seen = []
    side_by_side = train_many(specs, [tmp_path / "b0", tmp_path / "b1"], jobs=2, report=seen.append)
    for a, b in zip(alone, side_by_side, strict=True):
        assert a.finished
        assert digests(a) == digests(b)
    assert {line.path.name for line in seen} == {"b0", "b1"}
    assert max(line.step for line in seen) == 60


@pytest.mark.thorough
def test_a_killed_worker_is_started_again(tmp_path):
    """Every worker is killed once, at its first line of metrics after a saved state."""
    killed = set()

    def kill_once(line):
        if line.step >= 40 and line.path not in killed:
            killed.add(line.path)
            os.kill(json.loads((line.path / HOLDER_FILE).read_text())["pid"], signal.SIGKILL)

    specs = [small_spec(seed=seed, changes={"recipe.n_steps": 400, "recipe.batch_size": 128}) for seed in (0, 1)]
    runs = train_many(specs, [tmp_path / "0", tmp_path / "1"], jobs=2, report=kill_once)
    assert len(killed) == 2
    assert all(run.finished for run in runs)
    reference = train_many(specs[:1], [tmp_path / "reference"])[0]
    assert digests(runs[0]) == digests(reference)


def test_a_refused_directory_stops_before_training(tmp_path):
    train_many([small_spec(seed=0)], [tmp_path / "run"])
    with pytest.raises(InputError, match="another specification"):
        train_many([small_spec(seed=2), small_spec(seed=1)], [tmp_path / "other", tmp_path / "run"], jobs=2)
    assert not (tmp_path / "other" / "checkpoints").exists()


@pytest.mark.full
def test_together_writes_the_same_directories(tmp_path):
    specs = [small_spec(seed=seed) for seed in (0, 1)]
    runs = train_many(specs, [tmp_path / "0", tmp_path / "1"], together=True)
    assert [run.steps for run in runs] == [(0, 10, 30, 60)] * 2


def test_threads_are_left_as_found(tmp_path):
    torch.set_num_threads(2)
    train_many([small_spec()], [tmp_path / "run"])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def seed_of(run: Run) -> int:
    return run.spec.seed


def test_results_come_in_the_order_of_the_runs(tiny):
    runs = [tiny, tiny, tiny]
    assert list(analyse_many(runs, seed_of)) == [0, 0, 0]
    assert list(analyse_many(runs, seed_of, jobs=2)) == [0, 0, 0]


def process_of(run: Run) -> int:
    return os.getpid()


@pytest.mark.parametrize(("n_cores", "here"), [(1, True), pytest.param(2, False, marks=pytest.mark.full)])
def test_no_jobs_are_one_per_core(tiny, monkeypatch, n_cores, here):
    monkeypatch.setattr(executor, "n_cores", lambda: n_cores)
    assert executor.n_processes(0) == n_cores
    assert (set(analyse_many([tiny, tiny], process_of, jobs=0)) == {os.getpid()}) == here


@pytest.fixture
def no_fork_server(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])


@pytest.mark.usefixtures("no_fork_server")
def test_where_there_is_no_fork_server_workers_are_spawned():
    assert executor.worker_context().get_start_method() == "spawn"
    executor.preload_server()  # nothing to start


@pytest.mark.thorough  # four processes that import everything
@pytest.mark.usefixtures("no_fork_server")
def test_spawned_workers_train_and_analyse(tmp_path):
    specs = [small_spec(seed=seed, changes={"recipe.n_steps": 10, "recipe.checkpoint_steps": ()}) for seed in (0, 1)]
    runs = train_many(specs, [tmp_path / "0", tmp_path / "1"], jobs=2)
    assert list(analyse_many(runs, seed_of, jobs=2)) == [0, 1]


def test_a_process_that_imports_an_unguarded_script_ends_when_it_asks_for_workers(monkeypatch):
    class ExitError(Exception):
        pass

    def end(code):
        raise ExitError(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ExitError, match=str(executor.UNGUARDED)):
        executor.worker_context()


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (UNGUARDED, InputError, "worker processes import "),
        (3, WorkersDiedError, "3 worker processes died of it, the last with exit code 3"),
    ],
)
@pytest.mark.full
def test_the_death_of_workers_is_told(code, error, message):
    with pytest.raises(error, match=message):
        list(analyse_many([code] * 2, os._exit, jobs=2))


def end_once(marks: Path) -> int:
    """Two processes die of it, one after the other."""
    n = len(list(marks.parent.glob(f"{marks.name}-*")))
    if n < 2:
        marks.with_name(f"{marks.name}-{n}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@pytest.mark.full
def test_pieces_whose_workers_die_are_given_to_others(tmp_path):
    assert list(analyse_many([tmp_path / "a", tmp_path / "b", tmp_path / "c"], end_once, jobs=2)) == [2, 2, 2]


def fail(number: int) -> None:
    raise ZeroDivisionError(number)


def wait_for_long(number: int) -> int:
    if number:
        time.sleep(60)
    return number


@pytest.mark.full
def test_workers_end_with_an_error_and_with_whoever_waits():
    with pytest.raises(ZeroDivisionError, match="1"):
        list(analyse_many([1, 1], fail, jobs=2))
    began = time.monotonic()
    results = analyse_many([0, 1, 1], wait_for_long, jobs=2)
    assert next(results) == 0
    results.close()
    assert time.monotonic() - began < 50
    assert not multiprocessing.active_children()


def test_no_more_processes_than_windows_can_wait_for(monkeypatch):
    monkeypatch.setattr(executor.sys, "platform", "win32")
    assert [executor.n_processes(jobs) for jobs in (1, 61, 62, 1024)] == [1, 61, 61, 61]


def test_a_number_of_jobs_that_is_none_is_refused_at_once(tiny, tmp_path):
    message = "jobs must be from 1 to 1024, or 0 for one process per core; got -1"
    with pytest.raises(InputError, match=message):
        analyse_many([tiny], seed_of, jobs=-1)
    with pytest.raises(InputError, match=message):
        run_trials([], [], jobs=-1)
    with pytest.raises(InputError, match=message):
        train_many([small_spec()], [tmp_path / "run"], jobs=-1)
    assert not (tmp_path / "run").exists()
