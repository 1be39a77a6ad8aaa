"""`mnemoscope heads`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import AnalysisOptions
from mnemoscope.core.errors import in_range


@dataclass(frozen=True, kw_only=True)
class Heads(AnalysisOptions):
    """Attention by mechanism: the simplest that can stand in for each head, for all together, and which paths count."""

    tolerance: float | None = None
    """Loss (nats) that a mechanism may cost; none: the fixed default."""
    n: int = 2048
    """Sequences of each subgroup; one half searches the mechanisms, the other is measured."""


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


def heads_run(run: ms.Run, options: Heads) -> dict[str, xr.Dataset]:
    """The mechanisms of one run, heads by role."""
    from mnemoscope.analyses.attention_replacement.search import TOLERANCE

    task, seed = run.spec.task, run.spec.seed
    batch = drawn(run, options, "heads")
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    results = ms.analyses.read_heads(run.hooked(options.step), task, batch, tolerance=tolerance, seed=seed)
    named = ms.analyses.last_roles(run)
    joint, paths = results.pop("joint"), results.pop("paths")
    names = [ms.analyses.called(str(name), named) for name in paths.get("path", xr.DataArray([])).values]
    return {
        "joint": joint.assign(n_replaced=joint.attrs["n_replaced"]),
        "paths": paths.assign_coords(path=names) if names else paths,
        **{name: ms.analyses.by_role(result, named) for name, result in results.items()},
    }


def _shown(results: Results, options: Heads, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import mechanisms
    from mnemoscope.viz.heads import joint_table, mechanism_table, path_table, share_figures

    tables = [mechanism_table(results["heads"]), joint_table(results["joint"]), path_table(results["paths"])]
    figures = list(share_figures(results["shares"]).items())
    return Shown(finding=mechanisms(results["heads"], results["joint"]), tables=tables, figures=figures, notes=NOTES)


def _check(options: Heads) -> None:
    if options.tolerance is not None:
        in_range("--tolerance", options.tolerance, 0, float("inf"))


analysis_command("heads", Heads, measure=heads_run, show=_shown, check=_check, apart=APART, vectors=True)
