"""`mnemoscope circuits`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import AnalysisOptions


@dataclass(frozen=True, kw_only=True)
class Circuits(AnalysisOptions):
    """OV and QK circuits read from the weights, copying and composition scores, and how well they predict causes."""

    n: int = 1024
    """Sequences of each subgroup; others name the heads."""


NOTES = (
    "Circuits are read from the weights with LayerNorm linearised at its mean scale, tokens and positions apart, up to "
    "constants that a softmax takes away. In later layers they are the direct path from the embeddings only.",
    "What weights say is not what a head causes: the last columns compare. 'pattern' is the attention predicted from "
    "the QK circuit against the one that occurs, 'zeros' and 'mean' the change of the logits predicted from the OV "
    "circuit against the one that removing the head brings. R² near 0: the read says nothing about the effect.",
)


def circuits_run(run: ms.Run, options: Circuits) -> dict[str, xr.Dataset]:
    """The circuits of one run, heads by role; composition stays by number."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = drawn(run, options, "circuits")
    reference = task.sample(options.n, split=split, generator=ms.generator(seed, "reference", split))
    results = ms.analyses.read_circuits(run.hooked(options.step), batch, reference=reference, seed=seed)
    named = ms.analyses.last_roles(run)
    return {
        name: result if name == "composition" else ms.analyses.by_role(result, named)
        for name, result in results.items()
    }


def _shown(results: Results, options: Circuits, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.circuits import circuit_figures, circuit_tables
    from mnemoscope.viz.findings import attention_scores

    tables, figures = circuit_tables(results), list(circuit_figures(results).items())
    return Shown(finding=attention_scores(results["patterns"]), tables=tables, figures=figures, notes=NOTES)


analysis_command("circuits", Circuits, measure=circuits_run, show=_shown)
