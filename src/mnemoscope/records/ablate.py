"""Ablation by role (`analyses.ablation`): skills without each part, and whether two skills need different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.records.audits import (
    AuditOptions,
    audit_figures,
    audit_finding,
    audit_run,
    audit_tables,
    check_audit,
)
from mnemoscope.records.record import MeasuredRuns, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Ablate(AuditOptions):
    """Skills without each head and MLP, each set of them, position or attention path; heads by role."""

    what: Literal["components", "subsets", "positions", "paths"] = "components"
    """Parts to remove: heads and MLPs, every set of those, their output at one position, or single attention paths."""
    within: str | None = None
    """Latent of the task: means and resampled activations come from sequences of the same class."""
    n: int = 2048
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


LIMITS = (
    "One part of the model at a time is replaced by zeros, by its mean over other sequences, or by its activation in "
    "another sequence. This shows what a skill needs with the rest of the model as it is, not what the part computes; "
    "a part that another one can stand in for looks unneeded.",
    "Heads are named by what they are needed for, on one half of the prompts; all numbers are from the other half.",
)

LEAST = 0.01
"""Loss of accuracy, or rise of the squared error, from which one of many parts is listed."""


def measure(run: ms.Run, options: Ablate) -> dict[str, xr.Dataset]:
    """Ablate the parts of one run; where there are two skills, add the dissociation of each pair."""
    from mnemoscope.core.positions import position_names

    choose, kinds = _choices(position_names(run.spec.task))[options.what]

    def remove(model: ms.HookedModel, _: str = "") -> xr.Dataset:
        return ms.analyses.ablate_by_role(
            model,
            run.spec.task,
            choose=choose,
            kinds=kinds,
            within=options.within,
            per_prompt=options.audit,
            n=options.n,
            split=options.split,
            seed=run.spec.seed,
        )

    kept = remove(run.hooked(options.step))
    ablation = kept.drop_dims("prompt") if options.audit else kept
    results = {"ablation": ablation}
    if options.what == "components" and ablation.sizes["skill"] > 1 and "accuracy" in ablation:
        results["dissociation"] = ms.analyses.dissociation(ablation)
    return {**results, **audit_run(run, options, {"audit": kept}, {"audit": _tested(run, options)}, remove)}


def _tested(run: ms.Run, options: Ablate) -> ms.Batch:
    """The sequences on which parts are removed."""
    from mnemoscope.analyses.roles import role_prompts

    return role_prompts(run.spec.task, n=options.n, split=options.split, seed=run.spec.seed)[1]


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The skills without each part, and the dissociation of skills."""
    from mnemoscope.report.ablation import ablation_quantity, dissociation_tables

    ablation, more = _listed_ablations(measured)
    quantity = ablation_quantity(ablation)
    title = f"{quantity.title} without one of the {measured.options.what}{more}"
    header, rows = ms.report.ablation_header(ablation), ms.report.ablation_rows(ablation)
    found = [ms.report.Table(name=quantity.name, title=title, header=header, rows=rows)]
    if "dissociation" in measured.results:
        found += dissociation_tables(measured.results["dissociation"])
    return [*audit_tables(measured), *found]


def _listed_ablations(measured: MeasuredRuns) -> tuple[xr.Dataset, str]:
    """The ablations that are listed, and a name for them: of many positions or paths those that cost something."""
    from mnemoscope.report.ablation import damage

    ablation = measured.results["ablation"]
    if measured.options.what not in ("positions", "paths"):
        return ablation, ""
    lost = damage(ablation).max(["seed", "kind", "skill"])
    more = f", those that cost some seed at least {LEAST:g} (all of them: ablation.nc)"
    return ablation.isel(role=(lost >= LEAST).values), more


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Bars of the skills without each part; of sets, positions and paths a heatmap of the damage."""
    from mnemoscope.report.ablation import ablation_quantity, drop_figure

    ablation, _ = _listed_ablations(measured)
    if measured.options.what == "components":
        caption, drawn = "Dots are seeds, bars their mean; 'nothing' is the intact model.", ms.report.ablation_by_role
    else:
        caption, drawn = f"{ablation_quantity(ablation).change.capitalize()}, mean over seeds.", drop_figure
    return [(caption, drawn(ablation)), *audit_figures(measured)]


def finding(measured: MeasuredRuns) -> str:
    """The claims that an audit allows, and the part that every skill needs most."""
    return audit_finding(measured) + ms.report.findings.describe_removal(measured.results["ablation"])


def _choices(names: Sequence[str]) -> dict[str, tuple[Any, tuple[ms.analyses.RemovalKind, ...]]]:
    """The parts to remove one at a time, as `ablate_by_role` takes them, and their replacements, by option."""
    from mnemoscope.analyses import ablation
    from mnemoscope.analyses.ablation import REPLACEMENTS
    from mnemoscope.analyses.roles import components_by_role, targets_by_role

    def subsets(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return ablation.target_subsets(components_by_role(model, named, n_pos))

    def at_positions(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return targets_by_role(ablation.position_targets(model, names[:n_pos] or n_pos), named)

    def paths(model: ms.HookedModel, named: Mapping[str, str], n_pos: int) -> Any:
        return targets_by_role(ablation.attention_paths(model, n_pos, names=names), named)

    return {
        "components": (components_by_role, REPLACEMENTS),
        "subsets": (subsets, REPLACEMENTS),
        "positions": (at_positions, ("mean", "resample")),
        "paths": (paths, ("knockout",)),
    }


check = check_audit


register_module(__name__, Ablate, vectors=True)
