"""`mnemoscope ablate`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.head_roles import ablate_by_role
from mnemoscope.analyses.examine import over_seeds
from mnemoscope.cli.options import Ablate
from mnemoscope.cli.output import show, write_arrays, write_table
from mnemoscope.core.errors import in_range
from mnemoscope.models.run import Run, by_label, find_runs
from mnemoscope.sweeps.local import analyse_many
from mnemoscope.viz.tables import ablation_header, ablation_rows


def run(options: Ablate) -> None:
    """Print a table of roles by skills for every configuration, and write arrays if asked to."""
    in_range("--n", options.n, 2, float("inf"))
    for label, runs in by_label(find_runs(options.runs)).items():
        analyse = partial(ablate_run, n=options.n, split=options.split)
        results = over_seeds(runs, list(analyse_many(runs, analyse, jobs=options.jobs)))
        header, rows = ablation_header(results["ablation"]), ablation_rows(results["ablation"])
        show(f"{label}, {len(runs)} seeds: accuracy, mean [range] over seeds", header, rows)
        if options.out:
            write_arrays(options.out / label, results)
            write_table(options.out / label / "table.csv", header, rows)


def ablate_run(run: Run, n: int, split: str) -> dict[str, xr.Dataset]:
    """The ablations of one run."""
    return {"ablation": ablate_by_role(run.model(), run.spec.task, n=n, split=split, seed=run.spec.seed)}
