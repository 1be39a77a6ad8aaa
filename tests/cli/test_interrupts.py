"""An interrupt from the keyboard is one line and exit code 130, whatever is under way."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.process import note_interrupts

LINE = "mnemoscope: interrupted; the same command continues\n"


@pytest.fixture(autouse=True)
def interruptible():
    """As in a terminal: what runs in the background of a shell ignores interrupts, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt(options) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def _interrupt_and_fail(options) -> None:
    """As a library that is imported while the interrupt comes."""
    try:
        _interrupt(options)
    except KeyboardInterrupt:
        raise AttributeError("partially initialised") from None


@pytest.mark.parametrize("run", [_interrupt, _interrupt_and_fail])
def test_an_interrupt_is_one_line(run, monkeypatch, capsys):
    monkeypatch.setattr("mnemoscope.cli.parse.execute", lambda command, words, **_: run(words))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        main(["list"])
    assert end.value.code == 130
    assert capsys.readouterr().err == LINE
    assert signal.getsignal(signal.SIGINT) is before


def test_other_errors_are_errors(monkeypatch):
    def fail(command, words, **_):
        raise AttributeError("a bug")

    monkeypatch.setattr("mnemoscope.cli.parse.execute", fail)
    with pytest.raises(AttributeError, match="a bug"):
        main(["list"])


def test_a_handler_of_somebody_else_is_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with note_interrupts() as noted:
            os.kill(os.getpid(), signal.SIGINT)
        assert not noted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.thorough  # processes of their own, which import everything
@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are POSIX's")
@pytest.mark.parametrize("until", ["server", "training"])
def test_workers_end_without_a_word(until, tmp_path):
    """The keyboard interrupts the whole group: command, server of workers, and workers."""
    words = ["train", "--preset", "v3", "--seeds", "0-2", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mnemoscope.cli", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    if until == "server":
        time.sleep(2)
    while until == "training" and not list(tmp_path.rglob("metrics.jsonl")) and time.monotonic() < end:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error == LINE
    assert process.returncode in (
        130,
        -signal.SIGINT,
    )  # the signal itself, if it came within `exec`
    with pytest.raises(ProcessLookupError):
        _gone(process.pid)


def _gone(group: int) -> None:
    """Wait until no process of a group is left.

    Raises:
        ProcessLookupError: There is none.
    """
    for _ in range(100):
        os.killpg(group, 0)
        time.sleep(0.1)
