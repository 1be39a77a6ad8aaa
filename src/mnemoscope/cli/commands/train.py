"""`mnemoscope train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Jobs
from mnemoscope.cli.parse import default_system, parse_changes, parse_seeds


@dataclass(frozen=True, kw_only=True)
class Train(Jobs):
    """Train presets over seeds; interrupted runs continue, finished ones are left alone."""

    preset: tuple[str, ...] = ()
    """Configurations; `mnemoscope list presets` shows them. None: the one that an installed system has as default."""
    recipe: str = "quick"
    """Training recipe: quick or published."""
    seeds: str = "0"
    """Seeds, such as `3`, `0-15` or `0-3,7`."""
    together: bool = False
    """Train all seeds of a configuration as one program (worth it on a GPU)."""
    out: Path = Path("runs")
    """Runs go to OUT/<preset>-<recipe>/seed-<seed>."""
    device: str = "cpu"
    """Where to train, such as cpu, cuda or cuda:1."""
    corpus: Path | None = None
    """Text file in place of the one that the task is made of, for tasks that are made of a text."""
    set: tuple[str, ...] = ()
    """Changes such as `recipe.n_steps=500 model.normalization=none task.<field>=<value>`."""


def run(options: Train) -> None:
    """Train what the options name, and say where it lies."""
    from mnemoscope.cli.corpus import with_corpus
    from mnemoscope.cli.output import console
    from mnemoscope.viz.tables import counted

    presets = options.preset or (default_system()[1],)
    changes = parse_changes(options.set)
    if options.corpus is not None:
        changes |= with_corpus(presets, options.corpus)
    specs = [
        ms.preset(name, options.recipe, seed, changes=changes)
        for name in presets
        for seed in parse_seeds(options.seeds)
    ]
    runs = train_with_progress(specs, options.out, options.jobs, options.device, together=options.together)
    console.print(f"{counted(len(runs), 'finished run')} in {options.out}", highlight=False)


def train_with_progress(
    specs: Sequence[ms.RunSpec], out: Path, jobs: int, device: str = "cpu", *, together: bool = False
) -> list[ms.Run]:
    """Train with a live display; the run of a specification goes to <out>/<label>/seed-<seed>."""
    from mnemoscope.cli.output import console
    from mnemoscope.cli.progress import live
    from mnemoscope.models.device import usable_device

    paths = [out / spec.label / f"seed-{spec.seed:02d}" for spec in specs]
    unfinished = sum(not (path / "done").exists() for path in paths)
    usable_device(device)  # before the display begins
    with live(unfinished, console) as report:
        return ms.train_many(specs, paths, jobs=jobs, device=device, report=report, together=together)


COMMANDS.add("train", Command(options=Train, run=run, section="train and look"))
