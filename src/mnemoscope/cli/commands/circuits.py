"""`mnemoscope circuits`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.circuits.summaries import read_circuits
from mnemoscope.analyses.dynamics.trajectories import last_roles
from mnemoscope.analyses.roles import by_role
from mnemoscope.cli.analysis import Results, Shown, Table, each_configuration, publish
from mnemoscope.cli.analysis_options import Circuits
from mnemoscope.core.errors import in_range
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.viz.circuits import COMPOSITION_HEADER, HEADER, circuit_figures, circuit_rows, composition_rows

NOTES = (
    "Circuits are read from the weights with LayerNorm linearised at its mean scale, tokens and positions apart, up to "
    "constants that a softmax takes away. In later layers they are the direct path from the embeddings only.",
    "What weights say is not what a head causes: the last columns compare. 'pattern' is the attention predicted from "
    "the QK circuit against the one that occurs, 'zeros' and 'mean' the change of the logits predicted from the OV "
    "circuit against the one that removing the head brings. R² near 0: the read says nothing about the effect.",
)


def run(options: Circuits) -> None:
    """Print what every head's circuits look like and predict; write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    analyse = partial(circuits_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        publish("circuits", label, runs, results, _shown(results), options.out)


def circuits_run(run: Run, options: Circuits) -> dict[str, xr.Dataset]:
    """The circuits of one run, heads by role; composition stays by number."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = task.monitor(options.n, split=split, generator=generator(seed, "circuits", split))
    reference = task.sample(options.n, split=split, generator=generator(seed, "reference", split))
    results, named = read_circuits(run.model(options.step), batch, reference=reference, seed=seed), last_roles(run)
    return {name: result if name == "composition" else by_role(result, named) for name, result in results.items()}


def _shown(results: Results) -> Shown:
    title = "circuits read from the weights, and how well they predict"
    tables = [Table(name="summary", title=title, header=HEADER, rows=circuit_rows(results))]
    if "composition" in results:
        first = results["composition"].isel(seed=0)
        title = f"composition of heads, seed {int(first.seed)}"
        rows = composition_rows(first)
        tables.append(Table(name="most-composed", title=title, header=COMPOSITION_HEADER, rows=rows, n_text=3))
    return Shown(tables=tables, figures=list(circuit_figures(results).items()), notes=NOTES)
