"""`mnemoscope neurons`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.neurons.roles import read_neurons
from mnemoscope.cli.analysis import Results, Shown, Table, each_configuration, publish
from mnemoscope.cli.analysis_options import Neurons
from mnemoscope.core.errors import in_range
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run
from mnemoscope.viz.neurons import (
    NEURON_HEADER,
    key_figure,
    neuron_rows,
    role_header,
    role_rows,
    share_figure,
    share_header,
    share_rows,
)

NOTES = (
    "A neuron is named after the simplest latent that its being active or not says most about, over the whole input "
    "space; that is descriptive, and untrained neurons get such names too. What removing neurons costs is causal, "
    "given the rest of the model as it is: neurons that can stand in for each other look unneeded one at a time.",
    "The top k neurons are ranked by what removing one costs, on one half of the prompts, and kept, all others at "
    "their mean, on the other half. A dash: the layer carries too little of the skill for a fraction to mean anything.",
)


def run(options: Neurons) -> None:
    """Print roles, shares and the most needed neurons of every configuration; write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    in_range("--top", options.top, 1, float("inf"))
    analyse = partial(neurons_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        publish("neurons", label, runs, results, _shown(results, options.top), options.out)


def neurons_run(run: Run, options: Neurons) -> dict[str, xr.Dataset]:
    """The neurons of one layer of one run."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = task.monitor(options.n, split=split, generator=generator(seed, "prompts", split))
    reference = task.sample(options.n, split=split, generator=generator(seed, "reference", split))
    inputs = batch if options.sampled else task.enumerate(split=split)
    model, skills = run.model(options.step), task.skills(batch)
    return read_neurons(model, batch, skills=skills, reference=reference, inputs=inputs, layer=options.layer, seed=seed)


def _shown(results: Results, top: int) -> Shown:
    roles, shares = results["roles"], results["shares"]
    first = {name: result.isel(seed=0) for name, result in results.items()}
    listed = f"the most needed neurons of seed {int(first['neurons'].seed)}"
    rows = neuron_rows(first["neurons"], first["selectivity"], first["agreement"], top=top)
    return Shown(
        tables=[
            Table(
                name="by-role",
                title="neurons by role, and accuracy without them",
                header=role_header(roles),
                rows=role_rows(roles),
            ),
            Table(
                name="top-k",
                title="fraction of each skill (accuracy) with k neurons kept",
                header=share_header(shares),
                rows=share_rows(shares),
            ),
            Table(name="most-needed", title=listed, header=NEURON_HEADER, rows=rows, n_text=4),
        ],
        figures=[
            ("Fraction of each skill against the number of neurons kept; one line a seed.", share_figure(shares)),
            (f"What {listed} read and write.", key_figure(first["neurons"], top=top)),
        ],
        notes=NOTES,
    )
