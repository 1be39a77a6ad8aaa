"""`mnemoscope dev zoo`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import JobOptions, RegisteredNames
from mnemoscope.cli.parse import default_system
from mnemoscope.core.errors import InputError, one_of


@dataclass(frozen=True, kw_only=True)
class Zoo(JobOptions):
    """Pack the runs behind the verdicts on a system into the archives of the zoo."""

    system: Positional[Annotated[str | None, RegisteredNames("systems")]] = None
    """Whose runs; none: those of the first system that has a default preset."""
    runs: Path = Path("reports/zoo/runs")
    """Directory with the runs."""
    train: bool = False
    """Train what is missing there first, and follow it where the zoo keeps what was measured along training (hours)."""
    only: tuple[str, ...] = ()
    """Configurations to pack; none: all that the verdicts rest on."""
    add: bool = False
    """Keep the seeds that an archive holds already, and pack those that are there though others are still missing."""
    out: Path | None = None
    """Directory for the archives; none: that of the package."""
    manifest: bool = False
    """Pack nothing; replay the runs of the archives that are there, and list these in the manifest again."""


def run(options: Zoo) -> None:
    """Pack the runs behind the verdicts, after a check that they are these."""
    from mnemoscope.cli.commands.runs import track_all
    from mnemoscope.cli.commands.train import train_with_progress
    from mnemoscope.cli.output import console, countdown, show
    from mnemoscope.models import zoo
    from mnemoscope.models.manifest import FILE
    from mnemoscope.models.packing import pack
    from mnemoscope.run.verification import list_archive

    system = options.system or default_system()[0]
    plan = zoo.runs_to_pack(system)
    for label in options.only:
        one_of("--only", label, plan)
    chosen, compact = options.only or tuple(plan), ms.SYSTEMS.get(system).compact
    if options.manifest:
        folder = options.out or zoo.folder(type(next(iter(plan[chosen[0]].values())).task).__module__)
        files = [folder / f"{label}.zip" for label in chosen]
        with countdown(len(files), "archives listed") as advance:
            for file in files:
                list_archive(file, jobs=options.jobs)
                advance()
        console.print(f"archives listed: {len(files)}, in {folder / FILE}", highlight=False)
        return
    if options.train:
        trained = train_with_progress([s for label in chosen for s in plan[label].values()], options.runs, options.jobs)
        if compact:
            track_all(trained, options.jobs)
    found = ms.models.by_label(ms.find_runs(options.runs))
    groups = [_planned_runs(label, plan[label], found.get(label, ()), partly=options.add) for label in chosen]
    out = options.out or zoo.folder(type(groups[0][0].spec.task).__module__)
    rows = []
    with countdown(len(groups), "configurations packed") as advance:
        for group in groups:
            file = pack(group, out, compact=compact, add=options.add)
            list_archive(file, jobs=options.jobs)
            rows.append([group[0].label, str(len(group)), f"{file.stat().st_size / 1000:.0f}"])
            advance()
    show(f"packed into {out}", ("configuration", "seeds", "kB"), rows)
    total = sum(file.stat().st_size for file in out.glob("*.zip"))
    console.print(f"{total / 1e6:.1f} MB in {out}, with what was there before", highlight=False)


def _planned_runs(label: str, specs: Mapping[int, ms.RunSpec], runs: Iterable[ms.Run], *, partly: bool) -> list[ms.Run]:
    """The runs of the plan (no seeds beyond it) among those that were found, or with `partly` those that exist."""
    found = {run.spec.seed: run for run in runs}
    missing = sorted(specs.keys() - found.keys())
    if missing and (not partly or len(missing) == len(specs)):
        seeds = ", ".join(map(str, missing))
        raise InputError(f"--runs holds no finished {label} of seed {seeds}; --train trains what is missing")
    there = {seed: spec for seed, spec in sorted(specs.items()) if seed in found}
    for seed, spec in there.items():
        if found[seed].spec != spec:
            raise InputError(f"{found[seed].path} has another specification than {label} in the plan; train it again")
    return [found[seed] for seed in there]


COMMANDS.add("dev zoo", Command(options=Zoo, run=run, section="for maintainers", earlier={"zoo": {}}))
