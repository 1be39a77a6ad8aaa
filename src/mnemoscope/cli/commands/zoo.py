"""`mnemoscope zoo`."""

from collections.abc import Iterable, Mapping

from mnemoscope.cli.options import Zoo
from mnemoscope.cli.output import console, show
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.core.specification import RunSpec
from mnemoscope.models import zoo
from mnemoscope.models.packing import pack
from mnemoscope.models.run import Run, by_label, find_runs


def run(options: Zoo) -> None:
    """Pack the runs of the system's full plan, after a look whether they are those of the plan."""
    plan = planned(options.system)
    for label in options.only:
        one_of("--only", label, plan)
    found = by_label(find_runs(options.runs))
    groups = [_of_plan(label, plan[label], found.get(label, ())) for label in options.only or plan]
    out = options.out or zoo.folder(type(groups[0][0].spec.task).__module__)
    rows = []
    with console.status(f"packing {len(groups)} configurations"):
        for group in groups:
            file = pack(group, out, compact=SYSTEMS.get(options.system).compact)
            rows.append([group[0].label, str(len(group)), f"{file.stat().st_size / 1000:.0f}"])
    show(f"packed into {out}", ("configuration", "seeds", "kB"), rows)
    total = sum(file.stat().st_size for file in out.glob("*.zip"))
    console.print(f"{total / 1e6:.1f} MB in {out}, with what was there before", highlight=False)


def planned(system: str) -> Mapping[str, Mapping[int, RunSpec]]:
    """The runs behind the verdicts on a system, by label and seed."""
    plan: dict[str, dict[int, RunSpec]] = {}
    for part in SYSTEMS.get(system).judged:
        for spec in part.specs():
            plan.setdefault(spec.label, {})[spec.seed] = spec
    return plan


def _of_plan(label: str, specs: Mapping[int, RunSpec], runs: Iterable[Run]) -> list[Run]:
    """The runs of the plan among those that were found; seeds beyond the plan are left out."""
    found = {run.spec.seed: run for run in runs}
    if missing := sorted(specs.keys() - found.keys()):
        seeds = ", ".join(map(str, missing))
        raise InputError(
            f"--runs holds no {label} of seed {seeds}; `mnemoscope reproduce --full` trains what is missing"
        )
    for seed, spec in specs.items():
        if found[seed].spec != spec:
            raise InputError(f"{found[seed].path} has another specification than {label} in the plan; train it again")
    return [found[seed] for seed in sorted(specs)]
