"""`mnemoscope edges`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import OfPairs
from mnemoscope.cli.pairs import (
    by_skill,
    edges_by_role,
    heads_with_roles,
    metrics,
    pairs_by_skill,
    refuse_unknown,
)


@dataclass(frozen=True, kw_only=True)
class Edges(OfPairs):
    """Path patching: which connections between parts carry the difference between clean and corrupted sequences."""

    metrics: tuple[str, ...] = ()
    """logit_diff (the default), log_prob, prob, accuracy, kl; of vectors error_diff, squared_error, distance."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    effect: Literal["total", "direct"] = "total"
    """All that follows from the reader's change, or what its own output does to the logits."""
    freeze: tuple[Literal["attention", "layer_norm"], ...] = ()
    """What keeps its values of the unchanged run: attention, layer_norm."""
    approximate: bool = True
    """Estimate by gradients too (EAP, EAP-IG): total effects with nothing frozen, of metrics that are smooth."""


NOTES = (
    "An edge carries what its writer wrote on the other prompt, while every other reader sees what it wrote on this "
    "one. Noising patches the clean run: necessity is the share of the difference between clean and corrupted prompts "
    "that is lost. Denoising patches the corrupted run: sufficiency is the share that comes back. The first row of the "
    "table is the difference itself: below 0 the model prefers the other answer, and shares are of that.",
    "This shows that what a reader does depends on what the writer passes on of the difference between the two "
    "prompts. It does not show what that is, nor what the prompts have in common. Edges that can stand in for each "
    "other look unneeded, and effects do not add up. A dash: clean and corrupted are not told apart.",
)
ESTIMATED = (
    "EAP and EAP-IG estimate the same from gradients: in the unpatched run, or averaged over steps between the two. "
    "Where attention is saturated or a ReLU closed there is no gradient to see. Their error is that on these models "
    "and prompts; the overlap is the share of the truly largest edges among those estimated to be largest."
)
ELSEWHERE = (
    "Heads of one role lie in different layers in different seeds, so that not all of them have the same edges. A mean "
    "is over the seeds that have the edge, and the picture is of the first seed only."
)

_SMOOTH = ("logit_diff", "log_prob", "prob", "error_diff", "squared_error")
"""Accuracy has no gradient, and a divergence from the clean run none there."""


def edges_run(run: ms.Run, options: Edges) -> dict[str, xr.Dataset]:
    """The sweep over all edges of one run, its estimates and their error, a dataset a skill; and the roles of heads."""
    model, chosen = run.hooked(options.step), metrics("--metrics", options.metrics) or None
    results = {"roles": heads_with_roles(run)}
    for skill, pairs in pairs_by_skill(run, options, drawn(run, options, "edges")).items():
        kinds = {"embeddings": options.embeddings, "effect": options.effect, "freeze": options.freeze}
        values = ms.patch_edges(model, pairs, metrics=chosen, **kinds)
        effects = ms.analyses.effects(values, refuse=False)
        results[f"edges_{skill}"] = xr.merge([values, effects], combine_attrs="override")
        for name, result in _estimated(model, pairs, values, options).items():
            results[f"{name}_{skill}"] = result
    return results


def _estimated(
    model: ms.HookedModel, pairs: ms.PromptPairs, values: xr.Dataset, options: Edges
) -> dict[str, xr.Dataset]:
    """Effects by estimate, and their distance from those of the sweep; nothing where no estimate is wanted."""
    from mnemoscope.analyses.patching.approximation import approximation
    from mnemoscope.analyses.patching.edge_attribution import attribute_edges, integrate_edges

    smooth = metrics("--metrics", [name for name in _SMOOTH if name in values.metric])
    if not options.approximate or not smooth or options.effect != "total" or options.freeze:
        return {}
    exact = values.sel(metric=[metric.name for metric in smooth])
    by_name = {"EAP": attribute_edges, "EAP-IG": integrate_edges}
    estimates = [estimate(model, pairs, embeddings=options.embeddings, metrics=smooth) for estimate in by_name.values()]
    found = {
        "estimates": [ms.analyses.effects(estimate, refuse=False)[["ratio"]] for estimate in estimates],
        "errors": [approximation(estimate, exact) for estimate in estimates],
    }
    names = xr.DataArray(list(by_name), dims="estimate", name="estimate")
    return {name: xr.concat(parts, names, combine_attrs="drop_conflicts") for name, parts in found.items()}


def _shown(results: Results, options: Edges, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.interventions.edges.graph import model_edges
    from mnemoscope.viz.edges import role_circuit
    from mnemoscope.viz.findings import carried
    from mnemoscope.viz.patching import edge_table, error_table, estimate_figure, estimate_table, some_lack

    chosen = model_edges(runs[0].hooked(options.step), embeddings=options.embeddings)
    found, estimates, errors = (by_skill(name, results) for name in ("edges", "estimates", "errors"))
    first = next(iter(found.values()))
    attrs = first.attrs
    frozen = "" if attrs["frozen"] == "nothing" else f", {attrs['frozen']} frozen"
    tables, figures, notes = [], [], [*NOTES, *([ESTIMATED] if estimates else [])]
    for metric in first.metric.values.tolist():
        title = f"{metric} under patches of single edges, {attrs['pairs']}, {options.effect} effect{frozen}"
        tables.append(edge_table(found, metric, title))
        for skill, result in found.items():
            necessity = result.ratio.sel(direction="noising", metric=metric)
            drawing = role_circuit(chosen, necessity, results["roles"].component)
            if drawing is not None:
                figures.append((f"{skill}: necessity, {drawing[0]}; {title}.", drawing[1]))
        if estimates and metric in next(iter(estimates.values())).metric:
            tables += [estimate_table(found, estimates, metric), error_table(errors, metric)]
            title = f"{metric}: necessity of every edge in every seed, estimated and exact; on the line they are equal."
            figures.append((title, estimate_figure(found, estimates, metric)))
    notes += [ELSEWHERE] if some_lack(found) else []
    return Shown(finding=carried(found, what="single edges"), tables=tables, figures=figures, notes=notes)


def _check(options: Edges) -> None:
    metrics("--metrics", options.metrics)


def _finish(label: str, runs: Sequence[ms.Run], found: Results, options: Edges) -> Results:
    results = edges_by_role(found)
    ratios = {skill: result.ratio for skill, result in by_skill("edges", results).items()}
    refuse_unknown(label, ratios, missing="nothing to be carried", option="--metrics")
    return results


analysis_command("edges", Edges, measure=edges_run, show=_shown, check=_check, finish=_finish, vectors=True)
