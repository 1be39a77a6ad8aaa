"""`mnemoscope ablate`."""

from collections.abc import Mapping
from functools import partial

import xarray as xr

from mnemoscope.analyses.ablation import targets
from mnemoscope.analyses.ablation.dissociation import dissociation
from mnemoscope.analyses.ablation.head_roles import Choose, ablate_by_role, components_by_role
from mnemoscope.analyses.ablation.removal import REPLACEMENTS, Removal
from mnemoscope.cli.analysis import Results, Shown, Table, each_configuration, publish
from mnemoscope.cli.analysis_options import Ablate
from mnemoscope.core.errors import in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.run import Run
from mnemoscope.viz.ablation import (
    DISSOCIATION_HEADER,
    OUTCOME_HEADER,
    ablation_by_role,
    ablation_header,
    ablation_rows,
    dissociation_rows,
    drops,
    outcome_rows,
)

NOTES = (
    "One part of the model at a time is replaced by zeros, by its mean over other sequences, or by its activation in "
    "another sequence. This shows what a skill needs with the rest of the model as it is, not what the part computes; "
    "a part that another one can stand in for looks unneeded.",
    "Heads are named by what they are needed for, on one half of the prompts; all numbers are from the other half.",
)

LEAST = 0.01
"""Loss of accuracy from which one of many parts is listed."""


def run(options: Ablate) -> None:
    """Print what every configuration loses without each part, and write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    analyse = partial(ablate_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        publish("ablate", label, runs, results, _shown(results, options.what), options.out)


def ablate_run(run: Run, options: Ablate) -> dict[str, xr.Dataset]:
    """The ablations of one run, and the dissociation table where there are two skills."""
    choose, kinds = _CHOICES[options.what]
    ablation = ablate_by_role(
        run.model(options.step),
        run.spec.task,
        choose=choose,
        kinds=kinds,
        within=options.within,
        n=options.n,
        split=options.split,
        seed=run.spec.seed,
    )
    if options.what != "components" or ablation.sizes["skill"] < 2:
        return {"ablation": ablation}
    return {"ablation": ablation, "dissociation": dissociation(ablation)}


def _shown(results: Results, what: str) -> Shown:
    ablation, title = results["ablation"], f"accuracy without one of the {what}"
    if what in ("positions", "paths"):
        lost = (ablation.clean_accuracy - ablation.accuracy).max(["seed", "kind", "skill"])
        ablation = ablation.isel(role=(lost >= LEAST).values)
        title += f", those that cost some seed at least {LEAST:g} (all of them: ablation.nc)"
    header, rows = ablation_header(ablation), ablation_rows(ablation)
    tables = [Table(name="accuracy", title=title, header=header, rows=rows)]
    if "dissociation" in results:
        found = results["dissociation"]
        title = f"what removal costs, margin {found.attrs['margin']:g}, in seeds"
        rows = dissociation_rows(found)
        tables.append(Table(name="costs", title=title, header=DISSOCIATION_HEADER, rows=rows, n_text=3))
        rows, title = outcome_rows(found), "dissociation of skills"
        tables.append(Table(name="dissociation", title=title, header=OUTCOME_HEADER, rows=rows, n_text=3))
    if what == "components":
        figure = ("Dots are seeds, bars their mean; 'nothing' is the intact model.", ablation_by_role(ablation))
    else:
        figure = ("Accuracy lost, mean over seeds.", drops(ablation))
    return Shown(tables=tables, figures=[figure], notes=NOTES)


def _subsets(model: HookedModel, named: Mapping[str, str], n_pos: int) -> targets.Targets:
    return targets.subsets(components_by_role(model, named, n_pos))


def _positions(model: HookedModel, named: Mapping[str, str], n_pos: int) -> targets.Targets:
    return targets.by_role(targets.positions(model, n_pos), named)


def _paths(model: HookedModel, named: Mapping[str, str], n_pos: int) -> targets.Targets:
    return targets.by_role(targets.paths(model, n_pos), named)


_CHOICES: dict[str, tuple[Choose, tuple[Removal, ...]]] = {
    "components": (components_by_role, REPLACEMENTS),
    "subsets": (_subsets, REPLACEMENTS),
    "positions": (_positions, ("mean", "resample")),
    "paths": (_paths, ("knockout",)),
}
