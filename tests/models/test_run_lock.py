"""Who may write a run directory: between processes of one machine, and between machines that share a file system."""

import json
import os
import socket
from time import sleep

import filelock
import pytest

from mnemoscope.models import files
from mnemoscope.models.files import HOLDER_FILE, LEASE, LOCK_FILE, RunHeldError, hold_directory, is_held
from mnemoscope.training.loop import train
from tests.support import contents, small_spec


def claimed_by(path, host, *, silent_for=0.0):
    """What a process on a machine has left in the directory, some seconds after its last sign of life."""
    file = path / HOLDER_FILE
    file.write_text(json.dumps({"host": host, "pid": 1, "token": f"of {host}"}))
    (path / LOCK_FILE).touch()
    then = (path / LOCK_FILE).stat().st_mtime - silent_for
    os.utime(file, (then, then))
    return file


@pytest.fixture
def often(monkeypatch):
    """Signs of life every hundredth of a second."""
    monkeypatch.setattr(files, "TOUCHED_EVERY", 0.01)


def until(true):
    for _ in range(3000):
        if true():
            return True
        sleep(0.01)
    raise AssertionError("it did not become true")


def test_a_holder_says_who_it_is_and_takes_its_name_away(tmp_path):
    with hold_directory(tmp_path):
        content = json.loads((tmp_path / HOLDER_FILE).read_text())
        assert (content["host"], content["pid"]) == (socket.gethostname(), os.getpid())
    assert not (tmp_path / HOLDER_FILE).exists()


def test_a_holder_on_another_machine_is_respected_while_it_lives(tmp_path):
    file = claimed_by(tmp_path, "node7", silent_for=LEASE - 30)
    with pytest.raises(RunHeldError, match="is being trained on node7; wait for it or choose another; if that machine"):
        hold_directory(tmp_path).__enter__()
    assert is_held(tmp_path)
    assert json.loads(file.read_text())["host"] == "node7"


def test_one_that_shows_no_life_is_taken_for_dead(tmp_path):
    claimed_by(tmp_path, "node7", silent_for=LEASE + 1)
    assert not is_held(tmp_path)
    with hold_directory(tmp_path):
        assert json.loads((tmp_path / HOLDER_FILE).read_text())["host"] == socket.gethostname()


def test_one_that_died_on_this_machine_stops_nobody(tmp_path):
    claimed_by(tmp_path, socket.gethostname())
    assert not is_held(tmp_path)
    with hold_directory(tmp_path):
        pass


def test_a_holder_file_that_cannot_be_read_stops_nobody(tmp_path):
    (tmp_path / HOLDER_FILE).write_text('{"host": "no')
    assert not is_held(tmp_path)
    with hold_directory(tmp_path) as held:
        assert json.loads((tmp_path / HOLDER_FILE).read_text())["token"] == held.token


@pytest.mark.usefixtures("often")
def test_a_holder_shows_life(tmp_path):
    with hold_directory(tmp_path) as held:
        os.utime(tmp_path / HOLDER_FILE, (0, 0))
        assert until(lambda: (tmp_path / HOLDER_FILE).stat().st_mtime > 0)
        assert json.loads((tmp_path / HOLDER_FILE).read_text())["token"] == held.token


@pytest.mark.usefixtures("often")
def test_one_that_was_taken_for_dead_notices_and_leaves_the_other_alone(tmp_path):
    with hold_directory(tmp_path) as held:
        held.check()
        file = claimed_by(tmp_path, "node7")
        until(held.lost.is_set)
        with pytest.raises(RunHeldError, match="was taken over by another process, since this one showed no life"):
            held.check()
    assert json.loads(file.read_text())["token"] == "of node7"


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(self, *args, **kwargs):
        raise NotImplementedError("no flock on this file system")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)


@pytest.mark.usefixtures("no_locks")
def test_where_the_file_system_has_no_locks_signs_of_life_decide_alone(tmp_path):
    with hold_directory(tmp_path):
        (tmp_path / LOCK_FILE).touch()
        assert is_held(tmp_path)
        with pytest.raises(RunHeldError, match=f"is being trained on {socket.gethostname()}"):
            hold_directory(tmp_path).__enter__()
    with hold_directory(tmp_path):
        pass


@pytest.mark.usefixtures("often")
def test_training_stops_when_it_is_taken_over_and_the_other_ends_with_the_same_bytes(tmp_path, tiny):
    lost = []

    def taken_over(line):
        if line.step == 40:
            file = claimed_by(tmp_path, "node7")
            sleep(0.5)
            lost.append((file, contents(tmp_path)))

    with pytest.raises(RunHeldError, match="was taken over"):
        train(small_spec("v3"), tmp_path, report=taken_over)
    ((file, before),) = lost
    assert contents(tmp_path) == before, "nothing is written after that"
    file.unlink()
    train(small_spec("v3"), tmp_path)
    assert contents(tmp_path) == contents(tiny.path)
