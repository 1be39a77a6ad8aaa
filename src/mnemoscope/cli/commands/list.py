"""`mnemoscope list`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options
from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class List(Options):
    """What exists: tasks, presets, systems, the runs that came with the package, or those below a directory."""

    what: Positional[Annotated[str, "tasks, presets, systems, zoo or a directory"]] = "presets"
    """tasks, presets, systems, zoo, a word `zoo:<configuration>`, or a directory with runs."""


_ZOO = "zoo"  # as `models.zoo.WORD`, which takes the models along
_ZOO_HEADER = ("configuration", "seeds", "steps", "checkpoints", "kB")


def run(options: List) -> None:
    """Print names with one line each, what the zoo holds, or the runs below a directory."""
    from mnemoscope.cli.output import show

    if options.what == "tasks":
        show("tasks", ("name", "what"), [[name, _summary(ms.TASKS.get(name))] for name in ms.TASKS.names()], n_text=2)
    elif options.what == "presets":
        rows = [
            [name, ms.PRESETS.get(name).summary, ", ".join(ms.PRESETS.get(name).recipes)] for name in ms.PRESETS.names()
        ]
        show("presets", ("name", "what", "recipes"), rows, n_text=3)
    elif options.what == "systems":
        show(
            "systems", ("name", "what"), [[name, ms.SYSTEMS.get(name).summary] for name in ms.SYSTEMS.names()], n_text=2
        )
    elif options.what == _ZOO:
        show("runs that came with the package", _ZOO_HEADER, _zoo())
    elif options.what.startswith(f"{_ZOO}:") or Path(options.what).is_dir():
        _show_runs(options.what)
    else:
        raise InputError(f"list takes tasks, presets, systems, zoo or a directory with runs; got {options.what!r}")


def _zoo() -> list[list[str]]:
    """One line per configuration, read from the archives without unpacking them."""
    from mnemoscope.models import zoo

    rows = []
    for archive in zoo.archives():
        seeds = [int(run.removeprefix("seed-")) for run in archive.steps]
        first, *_ = steps = list(archive.steps.values())
        kept = [f"{len(first)} of seed {seeds[0]}", f"{len(steps[-1])} of the others"]
        rows.append(
            [
                archive.label,
                f"{len(seeds)}: {seeds[0]} to {seeds[-1]}",
                str(first[-1]),
                ", ".join(kept if len(steps) > 1 else kept[:1]),
                f"{len(archive.content) / 1000:.0f}",
            ]
        )
    return rows


def _summary(task: type) -> str:
    return (task.__doc__ or "").strip().splitlines()[0]


def _show_runs(what: str) -> None:
    """One line per run, with what differs from its preset where something does."""
    from mnemoscope.cli.output import show
    from mnemoscope.core.differences import changes_text

    runs = ms.find_runs(Path(what))
    changes = [changes_text(run.spec) for run in runs]
    rows = []
    for run, text in zip(runs, changes, strict=True):
        state = "finished" if run.finished else "unfinished"
        loss = float(run.metrics().train_loss[-1]) if (run.path / "metrics.jsonl").exists() else math.nan
        row = [run.label, *([text] if any(changes) else []), str(run.spec.seed), str(run.steps[-1]), state]
        rows.append([*row, f"{loss:.4f}"])
    header = ("run", *(["changed"] if any(changes) else []), "seed", "steps", "state", "loss")
    show(f"runs of {what}", header, rows, n_text=len(header) - 4)


COMMANDS.add("list", Command(options=List, run=run, section="the package"))
