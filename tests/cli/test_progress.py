import io
import re
from pathlib import Path

from rich.console import Console

from mnemoscope.cli.progress import live
from mnemoscope.training.recorder import Progress


def test_loss_both_accuracies_and_the_time_left_fit_80_columns():
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    metrics = {"train_loss": 1.25, "test_loss": 2.0, "test_elimination": 1.0, "test_recall": 0.256}
    with live(2, console) as report:
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
