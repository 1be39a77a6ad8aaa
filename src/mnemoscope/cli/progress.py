"""Live progress: a line for each run at work in training; for other work one line that then goes away."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from mnemoscope.core.runtime import listen_to_progress
from mnemoscope.training import recorder
from mnemoscope.training.recorder import Report


@contextmanager
def counted_down(n: int, what: str, console: Console) -> Iterator[Callable[[], None]]:
    """A function to be called after each of `n` pieces of work; shows how many are done and the time left.

    Progress within a piece in this process (`core.progress`) counts for its share. Nothing is shown where the output is
    no terminal. `what` names the pieces, such as `runs`, before the bar.
    """
    bars = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.percentage:3.0f}%", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal,
    )
    done = 0
    with bars:
        bar = bars.add_task(_of(what, done, n), total=n)

        def heard(pieces: int, of: int) -> None:
            bars.update(bar, completed=done + min(pieces / max(of, 1), 1))

        def advance() -> None:
            nonlocal done
            done += 1
            bars.update(bar, completed=done, description=_of(what, done, n))

        with listen_to_progress(heard):
            yield advance


def _of(what: str, done: int, n: int) -> str:
    return what if n == 1 else f"{what}, {done} of {n}"


@contextmanager
def live(n_runs: int, console: Console) -> Iterator[Report]:
    """A report function that shows loss, both accuracies and the time left; finished runs become a printed line."""
    bars = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
        console=console,
        expand=True,
    )
    tasks: dict[Path, TaskID] = {}
    shares: dict[Path, float] = {}
    with bars:
        overall = bars.add_task("runs", total=n_runs, numbers=f"0 of {n_runs}")

        def report(line: recorder.Progress) -> None:
            name = "/".join(line.path.parts[-2:])
            if line.path not in tasks:
                tasks[line.path] = bars.add_task(name, total=line.n_steps, numbers=_numbers(line, digits=0))
            bars.update(tasks[line.path], completed=line.step, numbers=_numbers(line, digits=0))
            shares[line.path] = line.step / line.n_steps
            if line.step == line.n_steps:
                bars.remove_task(tasks.pop(line.path))
                console.print(f"{name}  {_numbers(line, digits=1)}", highlight=False)
            done = sum(share == 1 for share in shares.values())
            bars.update(overall, completed=sum(shares.values()), numbers=f"{done} of {n_runs}")

        yield report


def _numbers(line: recorder.Progress, *, digits: int) -> str:
    """Loss on training mappings, and every accuracy on unseen ones."""
    skills = [name for name in line.metrics if name.startswith("test_") and "loss" not in name]
    accuracies = " ".join(f"{name.removeprefix('test_')} {line.metrics[name]:4.{digits}%}" for name in skills)
    return f"loss {line.metrics['train_loss']:.{digits + 3}f} {accuracies}"
