"""`mnemoscope train`."""

from collections.abc import Sequence
from pathlib import Path

from mnemoscope.cli.corpus import read_corpus, with_corpus
from mnemoscope.cli.options import Train
from mnemoscope.cli.output import console
from mnemoscope.cli.parse import parse_changes, parse_seeds
from mnemoscope.cli.progress import live
from mnemoscope.core.presets import preset
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.device import usable_device
from mnemoscope.models.run import Run
from mnemoscope.sweeps.local import train_many


def run(options: Train) -> None:
    """Train what the options name, and say where it lies."""
    changes = parse_changes(options.set)
    if options.corpus is not None:
        changes |= with_corpus(options.preset, read_corpus(options.corpus))
    specs = [
        preset(name, options.recipe, seed, changes=changes)
        for name in options.preset
        for seed in parse_seeds(options.seeds)
    ]
    runs = train_with_progress(specs, options.out, options.jobs, options.device, together=options.together)
    console.print(f"{len(runs)} finished runs in {options.out}", highlight=False)


def train_with_progress(
    specs: Sequence[RunSpec], out: Path, jobs: int, device: str = "cpu", *, together: bool = False
) -> list[Run]:
    """Train with a live display; the run of a specification goes to <out>/<label>/seed-<seed>."""
    paths = [out / spec.label / f"seed-{spec.seed:02d}" for spec in specs]
    unfinished = sum(not (path / "done").exists() for path in paths)
    usable_device(device)  # before the display begins
    with live(unfinished, console) as report:
        return train_many(specs, paths, jobs=jobs, device=device, report=report, together=together)
