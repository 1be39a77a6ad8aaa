"""`mnemoscope neurons`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import AnalysisOptions
from mnemoscope.core.errors import in_range


@dataclass(frozen=True, kw_only=True)
class Neurons(AnalysisOptions):
    """MLP neurons as key/value memories: what they read, what they write, what they are needed for."""

    layer: int = 0
    """Whose neurons."""
    top: int = 10
    """Neurons of the first run that are listed, the most needed first."""
    sampled: bool = False
    """Read selectivity from samples; without it from every sequence, which tasks may refuse."""
    n: int = 2048
    """Sequences of each subgroup; one half ranks the neurons, the other is measured."""


NOTES = (
    "A neuron is named after the simplest latent that its being active or not says most about, over the whole input "
    "space; that is descriptive, and untrained neurons get such names too. What removing neurons costs is causal, "
    "given the rest of the model as it is: neurons that can stand in for each other look unneeded one at a time.",
    "The top k neurons are ranked by what removing one costs, on one half of the prompts, and kept, all others at "
    "their mean, on the other half. A dash: the layer carries too little of the skill for a fraction to mean anything.",
)


def neurons_run(run: ms.Run, options: Neurons) -> dict[str, xr.Dataset]:
    """The neurons of one layer of one run."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = drawn(run, options, "prompts")
    reference = task.sample(options.n, split=split, generator=ms.generator(seed, "reference", split))
    inputs = batch if options.sampled else task.enumerate(split=split)
    model, skills = run.hooked(options.step), task.skills(batch)
    return ms.analyses.read_neurons(
        model, batch, skills=skills, reference=reference, inputs=inputs, layer=options.layer, seed=seed
    )


def _shown(results: Results, options: Neurons, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import sparsity
    from mnemoscope.viz.neurons import key_figure, neuron_table, role_table, share_figure, share_table

    first = {name: result.isel(seed=0) for name, result in results.items()}
    listed = neuron_table(first["neurons"], first["selectivity"], first["agreement"], top=options.top)
    shares = results["shares"]
    figures = [
        ("Fraction of each skill against the number of neurons kept; one line per seed.", share_figure(shares)),
        (f"What {listed.title} read and write.", key_figure(first["neurons"], top=options.top)),
    ]
    tables = [role_table(results["roles"]), share_table(shares), listed]
    return Shown(finding=sparsity(shares), tables=tables, figures=figures, notes=NOTES)


def _check(options: Neurons) -> None:
    in_range("--top", options.top, 1, float("inf"))


analysis_command("neurons", Neurons, measure=neurons_run, show=_shown, check=_check)
