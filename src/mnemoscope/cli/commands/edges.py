"""`mnemoscope edges`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, corruption, metrics
from mnemoscope.cli.lazy import xr
from mnemoscope.cli.options import OfPairs
from mnemoscope.core.errors import InputError, one_of


@dataclass(frozen=True, kw_only=True)
class Edges(OfPairs):
    """Path patching: which connections between parts carry the difference between clean and corrupted sequences."""

    metrics: tuple[str, ...] = ("logit_diff",)
    """Among logit_diff, log_prob, prob, accuracy, kl."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    effect: Literal["total", "direct"] = "total"
    """All that follows from the reader's change, or what its own output does to the logits."""
    freeze: tuple[Literal["attention", "layer_norm"], ...] = ()
    """What keeps its values of the unchanged run: attention, layer_norm."""
    approximate: bool = True
    """Estimate by gradients too (EAP, EAP-IG): total effects with nothing frozen, of logit_diff, log_prob, prob."""


NOTES = (
    "An edge carries what its writer wrote on the other prompt, while every other reader sees what it wrote on this "
    "one. Noising patches the clean run: necessity is the share of the difference between clean and corrupted prompts "
    "that is lost. Denoising patches the corrupted run: sufficiency is the share that comes back. The first row of the "
    "table is the difference itself: below 0 the model prefers the other answer, and shares are of that.",
    "This shows that what a reader does depends on what the writer tells it about that in which the two prompts "
    "differ. It does not show what is told, nor what the prompts have in common. Edges that can stand in for each "
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

_SMOOTH = ("logit_diff", "log_prob", "prob")
"""Accuracy has no gradient, and a divergence from the clean run none there."""


def edges_run(run: ms.Run, options: Edges) -> dict[str, xr.Dataset]:
    """The sweep over all edges of one run, its estimates and their error, a dataset a skill; and the roles of heads."""
    model, named = run.model(options.step), ms.analyses.last_roles(run)
    results = {"roles": xr.Dataset({"component": ("role", list(named))}, coords={"role": list(named.values())})}
    for skill, pairs in _pairs(run, options).items():
        values = ms.patch_edges(
            model,
            pairs,
            embeddings=options.embeddings,
            metrics=[metrics()[name] for name in options.metrics],
            effect=options.effect,
            freeze=options.freeze,
        )
        results[f"edges_{skill}"] = xr.merge(
            [values, ms.analyses.effects(values, refuse=False)], combine_attrs="override"
        )
        for name, result in _estimated(model, pairs, values, options).items():
            results[f"{name}_{skill}"] = result
    return results


def _pairs(run: ms.Run, options: Edges) -> dict[str, ms.PromptPairs]:
    """Clean and corrupted prompts of every skill."""
    task, seed = run.spec.task, run.spec.seed
    kind = corruption(task, options.corruption)
    batch = task.monitor(options.n, split=options.split, generator=ms.generator(seed, "edges", options.split))
    masks = task.skills(batch)
    for skill in options.skills:
        one_of("--skills", skill, masks)
    chosen = options.skills or tuple(masks)
    return {skill: ms.PromptPairs.from_task(task, batch, kind=kind, skill=skill, seed=seed) for skill in chosen}


def _estimated(
    model: ms.HookedModel, pairs: ms.PromptPairs, values: xr.Dataset, options: Edges
) -> dict[str, xr.Dataset]:
    """Effects by estimate, and how far they are from those of the sweep; nothing where none is asked for."""
    from mnemoscope.analyses.patching.approximation import approximation
    from mnemoscope.analyses.patching.edge_attribution import attribute_edges, integrate_edges

    smooth = [metrics()[name] for name in _SMOOTH if name in options.metrics]
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


def _of(name: str, results: Results) -> dict[str, xr.Dataset]:
    """Skill to result."""
    return {key.removeprefix(f"{name}_"): result for key, result in results.items() if key.startswith(f"{name}_")}


def _shown(results: Results, options: Edges, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.interventions.edges.graph import model_edges
    from mnemoscope.viz.edges import role_circuit
    from mnemoscope.viz.patching import MOST, edge_header, effect_rows, estimate_figure, some_lack

    chosen = model_edges(runs[0].model(options.step), embeddings=options.embeddings)
    found, estimates, component = _of("edges", results), _of("estimates", results), results["roles"].component
    first = next(iter(found.values()))
    attrs, n_edges = first.attrs, first.sizes["edge"]
    frozen = "" if attrs["frozen"] == "nothing" else f", {attrs['frozen']} frozen"
    tables, figures, notes = [], [], [*NOTES, *([ESTIMATED] if estimates else [])]
    for metric in options.metrics:
        title = f"{metric} under patches of single edges, {attrs['pairs']}, {options.effect} effect{frozen}"
        header, rows = edge_header(found), effect_rows(found, metric)
        most = f"; the {MOST} largest of {n_edges}" if n_edges > MOST else ""
        tables.append(ms.viz.Table(name=metric, title=title + most, header=header, rows=rows))
        for skill, result in found.items():
            drawn = role_circuit(chosen, result.ratio.sel(direction="noising", metric=metric), component)
            if drawn is not None:
                figures.append((f"{skill}: necessity, {drawn[0]}; {title}.", drawn[1]))
        if estimates and metric in next(iter(estimates.values())).metric:
            tables += _estimate_tables(results, metric)
            title = f"{metric}: necessity of every edge in every seed, estimated and exact; on the line they are equal."
            figures.append((title, estimate_figure(found, estimates, metric)))
    return Shown(tables=tables, figures=figures, notes=notes + ([ELSEWHERE] if some_lack(found) else []))


def _estimate_tables(results: Results, metric: str) -> list[ms.viz.Table]:
    from mnemoscope.viz.patching import ERROR_HEADER, error_rows, estimate_header, estimate_rows

    found, estimates = _of("edges", results), _of("estimates", results)
    beside, errors = estimate_rows(found, estimates, metric), error_rows(_of("errors", results), metric)
    title, of_errors = f"{metric}: necessity beside its estimates", f"{metric}: error of the estimates on each model"
    return [
        ms.viz.Table(name=f"{metric}-estimates", title=title, header=estimate_header(estimates), rows=beside),
        ms.viz.Table(name=f"{metric}-errors", title=of_errors, header=ERROR_HEADER, rows=errors, n_text=3),
    ]


def _check(options: Edges) -> None:
    for metric in options.metrics:
        one_of("--metrics", metric, metrics())


def _finish(label: str, runs: Sequence[ms.Run], found: Results, options: Edges) -> Results:
    """Edges of all seeds beside each other; refused where no run has anything to show."""
    from mnemoscope.analyses.patching.edge_roles import edges_of_seeds

    component = found["roles"].component
    results = {
        name: edges_of_seeds(result, component) if "edge" in result.dims else result for name, result in found.items()
    }
    if all(bool(result.ratio.isnull().all()) for result in _of("edges", results).values()):
        raise InputError(
            f"no run of {label} tells clean from corrupted sequences apart: there is nothing to be carried; take "
            "another --corruption, --metrics, --step or other runs"
        )
    return results


analysis_command("edges", Edges, measure=edges_run, show=_shown, check=_check, finish=_finish)
