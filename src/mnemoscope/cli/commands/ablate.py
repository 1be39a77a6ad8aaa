"""`mnemoscope ablate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, xr
from mnemoscope.cli.options import AnalysisOptions


@dataclass(frozen=True, kw_only=True)
class Ablate(AnalysisOptions):
    """What is lost without each head and MLP, each set of them, position or attention path; heads by role."""

    what: Literal["components", "subsets", "positions", "paths"] = "components"
    """What is removed: heads and MLPs, every set of those, their output at one position, or single attention paths."""
    within: str | None = None
    """Latent of the task: means and resampled activations come from sequences of the same class."""
    n: int = 2048
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


NOTES = (
    "One part of the model at a time is replaced by zeros, by its mean over other sequences, or by its activation in "
    "another sequence. This shows what a skill needs with the rest of the model as it is, not what the part computes; "
    "a part that another one can stand in for looks unneeded.",
    "Heads are named by what they are needed for, on one half of the prompts; all numbers are from the other half.",
)

LEAST = 0.01
"""Loss of accuracy, or rise of the squared error, from which one of many parts is listed."""


def ablate_run(run: ms.Run, options: Ablate) -> dict[str, xr.Dataset]:
    """The ablations of one run, and the dissociation table where there are two skills."""
    from mnemoscope.core.positions import names_of

    choose, kinds = _choices(names_of(run.spec.task))[options.what]
    ablation = ms.analyses.ablate_by_role(
        run.hooked(options.step),
        run.spec.task,
        choose=choose,
        kinds=kinds,
        within=options.within,
        n=options.n,
        split=options.split,
        seed=run.spec.seed,
    )
    if options.what != "components" or ablation.sizes["skill"] < 2 or "accuracy" not in ablation:
        return {"ablation": ablation}
    return {"ablation": ablation, "dissociation": ms.analyses.dissociation(ablation)}


def _shown(results: Results, options: Ablate, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.ablation import damage, dissociation_tables, drops, measure_of
    from mnemoscope.viz.findings import removal

    what, ablation = options.what, results["ablation"]
    measure = measure_of(ablation)
    title = f"{measure.title} without one of the {what}"
    if what in ("positions", "paths"):
        lost = damage(ablation).max(["seed", "kind", "skill"])
        ablation = ablation.isel(role=(lost >= LEAST).values)
        title += f", those that cost some seed at least {LEAST:g} (all of them: ablation.nc)"
    header, rows = ms.viz.ablation_header(ablation), ms.viz.ablation_rows(ablation)
    tables = [ms.viz.Table(name=measure.name, title=title, header=header, rows=rows)]
    if "dissociation" in results:
        tables += dissociation_tables(results["dissociation"])
    if what == "components":
        figure = ("Dots are seeds, bars their mean; 'nothing' is the intact model.", ms.viz.ablation_by_role(ablation))
    else:
        figure = (f"{measure.change.capitalize()}, mean over seeds.", drops(ablation))
    return Shown(finding=removal(results["ablation"]), tables=tables, figures=[figure], notes=NOTES)


def _choices(names: Sequence[str]) -> dict[str, tuple[Any, tuple[ms.analyses.Removal, ...]]]:
    """The things that are removed one at a time, as `ablate_by_role` takes them, and their replacements by option."""
    from mnemoscope.analyses.ablation import targets
    from mnemoscope.analyses.ablation.head_roles import components_by_role
    from mnemoscope.analyses.ablation.removal import REPLACEMENTS

    def subsets(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return targets.subsets(components_by_role(model, named, n_pos))

    def at_positions(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return targets.by_role(targets.positions(model, names[:n_pos] or n_pos), named)

    def paths(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return targets.by_role(targets.paths(model, n_pos, names=names), named)

    return {
        "components": (components_by_role, REPLACEMENTS),
        "subsets": (subsets, REPLACEMENTS),
        "positions": (at_positions, ("mean", "resample")),
        "paths": (paths, ("knockout",)),
    }


analysis_command("ablate", Ablate, measure=ablate_run, show=_shown, vectors=True)
