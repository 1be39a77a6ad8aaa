"""`mnemoscope heads`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.dynamics.trajectories import last_roles
from mnemoscope.analyses.mechanisms.search import TOLERANCE, read_heads
from mnemoscope.analyses.roles import by_role, called
from mnemoscope.cli.analysis import Results, Shown, Table, each_configuration, publish
from mnemoscope.cli.analysis_options import Heads
from mnemoscope.core.errors import in_range
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.viz.heads import (
    HEADER,
    JOINT_HEADER,
    PATHS_HEADER,
    joint_rows,
    mechanism_rows,
    path_rows,
    share_figures,
)

NOTES = (
    "A mechanism is an attention pattern that follows from the sequence. For every head the simplest one is sought "
    "that holds the loss of every skill in its place and does better than with its targets taken from another "
    "sequence; then all are put in together, and their paths are taken out one at a time. Search and test use "
    "different prompts.",
    "A mechanism that holds the loss says what the head's attention amounts to, not how it is computed. 'not needed': "
    "the head can be set to its mean at no cost, alone; 'unexplained': no mechanism that was tried will do.",
)
APART = ("paths", "selection")
"""What differs between seeds in more than its values: each seed has mechanisms of its own."""


def run(options: Heads) -> None:
    """Print the mechanisms of all heads, alone and together, and the paths that count; write arrays and figures."""
    in_range("--n", options.n, 2, float("inf"))
    if options.tolerance is not None:
        in_range("--tolerance", options.tolerance, 0, float("inf"))
    analyse = partial(heads_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs, apart=APART):
        publish("heads", label, runs, results, _shown(results), options.out)


def heads_run(run: Run, options: Heads) -> dict[str, xr.Dataset]:
    """The mechanisms of one run, heads by role."""
    task, seed = run.spec.task, run.spec.seed
    batch = task.monitor(options.n, split=options.split, generator=generator(seed, "heads", options.split))
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    results, named = read_heads(run.model(options.step), task, batch, tolerance=tolerance, seed=seed), last_roles(run)
    joint, paths = results.pop("joint"), results.pop("paths")
    names = [called(str(name), named) for name in paths.get("path", xr.DataArray([])).values]
    return {
        "joint": joint.assign(n_replaced=joint.attrs["n_replaced"]),
        "paths": paths.assign_coords(path=names) if names else paths,
        **{name: by_role(result, named) for name, result in results.items()},
    }


def _shown(results: Results) -> Shown:
    heads, joint, shares = (results[name] for name in ("heads", "joint", "shares"))
    tolerance = heads.attrs["tolerance"]
    paths = path_rows({name: node.to_dataset() for name, node in results["paths"].children.items()})
    title = f"the simplest mechanism of every head that costs at most {tolerance:g} nats"
    tables = [Table(name="mechanisms", title=title, header=HEADER, rows=mechanism_rows(heads), n_text=3)]
    title = "all explained heads replaced together"
    tables.append(Table(name="together", title=title, header=JOINT_HEADER, rows=joint_rows(joint)))
    title = "paths taken out one at a time, all explained heads replaced"
    tables.append(Table(name="without-path", title=title, header=PATHS_HEADER, rows=paths))
    return Shown(tables=tables, figures=list(share_figures(shares).items()), notes=NOTES)
