"""Live progress of many runs: a line each for those at work, one for all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mnemoscope.training import progress
from mnemoscope.training.recorder import Report


@contextmanager
def live(n_runs: int, console: Console) -> Iterator[Report]:
    """A report function that shows loss, both accuracies and the time left; finished runs become a printed line."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
        console=console,
    )
    tasks: dict[Path, TaskID] = {}
    with bars:
        overall = bars.add_task("runs", total=n_runs, numbers="")

        def report(line: progress.Progress) -> None:
            name = "/".join(line.path.parts[-2:])
            if line.path not in tasks:
                tasks[line.path] = bars.add_task(name, total=line.n_steps, numbers="")
            bars.update(tasks[line.path], completed=line.step, numbers=_numbers(line))
            if line.step == line.n_steps:
                bars.remove_task(tasks.pop(line.path))
                bars.advance(overall)
                console.print(f"{name}  {_numbers(line)}", highlight=False)

        yield report


def _numbers(line: progress.Progress) -> str:
    """Loss on training mappings, and every accuracy on unseen ones."""
    skills = [name for name in line.metrics if name.startswith("test_") and "loss" not in name]
    accuracies = "  ".join(f"{name.removeprefix('test_')} {line.metrics[name]:6.1%}" for name in skills)
    return f"loss {line.metrics['train_loss']:.4f}  {accuracies}"
