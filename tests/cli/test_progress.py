import io
import re
from pathlib import Path
from time import sleep

from rich.console import Console

from mnemoscope.cli import output
from mnemoscope.cli.output import countdown, live_training
from mnemoscope.core.runtime import listen_to_progress, progress
from mnemoscope.training.recorder import Progress


def test_loss_both_accuracies_and_the_time_left_fit_80_columns():
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    metrics = {"train_loss": 1.25, "test_loss": 2.0, "test_elimination": 1.0, "test_recall": 0.256}
    with live_training(2, console) as report:
        for step in (0, 50, 60, 100):
            report(Progress(Path("runs/v3-quick/seed-00"), step, 100, metrics))
            console.print("")  # shows the state of things
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]", out.getvalue())]
    at_work = [line for line in lines if "v3-quick/seed-00 ━" in line]
    assert at_work
    assert all(re.search(r"loss 1\.250 elimination 100% recall  26% (\d\d:\d\d|--:--)", line) for line in at_work)
    assert any("v3-quick/seed-00  loss 1.2500 elimination 100.0% recall 25.6%" in line for line in lines)
    assert any("1 of 2" in line for line in lines)
    assert max(len(line) for line in lines) <= 80


def test_a_run_with_clamps_is_shown_with_them():
    """The free model may never learn."""
    free = {"train_loss": 1.25, "test_loss": 1.5, "test_recall": 0.2}
    clamped = {"clamped_train_loss": 0.015, "clamped_test_loss": 0.016, "clamped_test_recall": 0.98}
    out = io.StringIO()
    with live_training(1, Console(file=out, width=80)) as report:
        report(Progress(Path("runs/v3-quick/seed-00"), 9, 9, free | clamped))
    assert "v3-quick/seed-00  clamped loss 0.0150 recall 98.0%\n" in out.getvalue()


def test_the_line_of_other_work_tells_the_share_of_one_run_and_goes_away():
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    with countdown(2, "v3-quick", console) as advance:
        for _ in progress(range(4)):
            sleep(0.15)  # shown ten times a second
        advance()
        sleep(0.15)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert re.findall(r"v3-quick, (\d) of 2 .*?(\d+)% \d:\d\d:\d\d left", text)[-1] == ("1", "50")
    shares = [int(share) for share in re.findall(r"(\d+)%", text)]
    assert {12, 25, 38} <= set(shares)
    assert shares == sorted(shares)
    assert max(map(len, re.split(r"[\r\n]", text))) <= 80


def test_a_short_work_writes_nothing_into_a_log():
    out = io.StringIO()
    with countdown(2, "runs", Console(file=out)) as advance:
        advance()
    assert out.getvalue() == ""


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch):
    """A log in which nothing appears for minutes looks like a command that hangs."""
    assert output.SECONDS_BETWEEN_LINES == 10
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.05)
    out = io.StringIO()
    with countdown(4, "runs", Console(file=out)) as advance:
        advance()
        sleep(0.3)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2
    assert set(lines) == {"runs, 1 of 4, 25 %, 0:00:00 passed"}
    out = io.StringIO()
    metrics = {"train_loss": 1.25, "test_recall": 0.256}
    with live_training(2, Console(file=out)) as report:
        report(Progress(Path("runs/v3-quick/seed-00"), 50, 100, metrics))
        sleep(0.3)
    assert "trained 0 of 2 runs, 25 %" in out.getvalue()


def test_the_outermost_loop_tells():
    heard = []
    with listen_to_progress(lambda done, of: heard.append((done, of))):
        for _ in progress([1, 2], of=4):
            list(progress(range(50)))
        for _ in progress(iter([1, 2]), after=2, of=4):
            pass
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert list(progress([5, 6])) == [5, 6]
    assert len(heard) == 4
