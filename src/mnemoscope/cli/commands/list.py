"""`mnemoscope list`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions, RegisteredNames
from mnemoscope.core.errors import InputError, suggest_nearest

if TYPE_CHECKING:
    from mnemoscope.models.glance import RunSummary


@dataclass(frozen=True, kw_only=True)
class List(CommandOptions):
    """List what exists: tasks, presets, systems, the runs that came with the package, or those below a directory."""

    what: Positional[Annotated[str, RegisteredNames("runs", also=("tasks", "presets", "systems"))]] = "presets"
    """tasks, presets, systems, zoo, a word `zoo:<configuration>`, or a directory with runs."""


_ZOO = "zoo"  # as `models.zoo.WORD`, which takes the models along
_ZOO_HEADER = ("configuration", "seeds", "steps", "checkpoints", "kB")


def run(options: List) -> None:
    """Print names with one line each, what the zoo holds, or the runs below a directory."""
    from mnemoscope.cli.catalogue import catalogue_entries
    from mnemoscope.cli.output import show

    if options.what == "presets":
        rows = [
            [name, each["summary"], ", ".join(each["recipes"])] for name, each in catalogue_entries("presets").items()
        ]
        show("presets", ("name", "what", "recipes"), rows, n_text=3)
    elif options.what == "tasks" or options.what == "systems":
        rows = [[name, each["summary"]] for name, each in catalogue_entries(options.what).items()]
        show(options.what, ("name", "what"), rows, n_text=2)
    elif options.what == _ZOO:
        show("trained runs that are installed", _ZOO_HEADER, _zoo())
        _show_missing()
    elif options.what.startswith(f"{_ZOO}:") or Path(options.what).is_dir():
        _show_runs(options.what)
    else:
        got = f"{options.what!r}{suggest_nearest(options.what, ('tasks', 'presets', 'systems', _ZOO))}"
        raise InputError(f"list takes tasks, presets, systems, zoo or a directory with runs; got {got}")


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


def _show_missing() -> None:
    """One line about configurations that are not installed."""
    from mnemoscope.cli.output import console
    from mnemoscope.models.zoo import INSTALL, missing

    if absent := missing():
        console.print(f"{len(absent)} more configurations come with {INSTALL}", highlight=False, markup=False)


def _show_runs(what: str) -> None:
    """One line per run, in the order of the presets, with what differs from its preset where something does."""
    from mnemoscope.cli.catalogue import catalogue_entries
    from mnemoscope.cli.output import show
    from mnemoscope.models.glance import no_runs_error, summarise_runs

    rank = {name: place for place, name in enumerate(catalogue_entries("presets"))}
    words = {
        name: called for system in catalogue_entries("systems").values() for name, called in system["in_words"].items()
    }
    found, unreadable = summarise_runs(Path(what))
    for problem in (*unreadable.values(), *(run.problem for run in found if run.problem)):
        raise InputError(problem)
    if not found:
        raise no_runs_error(Path(what))
    runs = sorted(found, key=lambda run: rank.get(run.preset, len(rank)))
    changes = [_preset_changes(run) if "+" in run.preset else "" for run in runs]
    rows = []
    for run, text in zip(runs, changes, strict=True):
        called, loss = f"{words.get(run.preset, run.preset)}-{run.recipe}", run.last("train_loss")
        values = [str(run.seed), str(run.reached), run.state, "–" if loss is None else f"{loss:.4f}"]
        rows.append([called, *([text] if any(changes) else []), *values])
    header = ("run", *(["changed"] if any(changes) else []), "seed", "steps", "state", "loss")
    show(f"runs of {what}", header, rows, n_text=len(header) - 4)


def _preset_changes(run: RunSummary) -> str:
    """The differences from the preset; takes the specification along, and so torch."""
    from mnemoscope.core.presets import changes_text

    return changes_text(run.spec)


COMMANDS.add("list", Command(options=List, run=run, section="the package"))
