"""`mnemoscope edges`."""

from collections.abc import Callable, Sequence
from functools import partial

import xarray as xr

from mnemoscope.analyses.dynamics.trajectories import last_roles
from mnemoscope.analyses.edges.approximation import approximation
from mnemoscope.analyses.edges.attribution import attribute_edges
from mnemoscope.analyses.edges.integrated import integrate_edges
from mnemoscope.analyses.edges.patching import patch_edges
from mnemoscope.analyses.edges.seeds import edges_of_seeds
from mnemoscope.analyses.patching import effects
from mnemoscope.cli.analysis import Results, Shown, Table, corruption, each_configuration, publish
from mnemoscope.cli.analysis_options import Edges
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import LOG_PROB, LOGIT_DIFF, METRICS, PROB
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.edges.graph import edges
from mnemoscope.models.run import Run
from mnemoscope.viz.edges import role_circuit
from mnemoscope.viz.patching import (
    ERROR_HEADER,
    MOST,
    edge_header,
    effect_rows,
    error_rows,
    estimate_figure,
    estimate_header,
    estimate_rows,
    some_lack,
)

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

_METRICS = {metric.name: metric for metric in METRICS}
_SMOOTH = (LOGIT_DIFF, LOG_PROB, PROB)
"""Accuracy has no gradient, and a divergence from the clean run none there."""
_ESTIMATES: dict[str, Callable[..., xr.Dataset]] = {"EAP": attribute_edges, "EAP-IG": integrate_edges}


def run(options: Edges) -> None:
    """Print necessity and sufficiency of every edge for each skill, and write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    for metric in options.metrics:
        one_of("--metrics", metric, _METRICS)
    analyse = partial(edges_run, options=options)
    for label, runs, found in each_configuration(options.runs, analyse, jobs=options.jobs):
        component = found["roles"].component
        results = {
            name: edges_of_seeds(result, component) if "edge" in result.dims else result
            for name, result in found.items()
        }
        if all(bool(result.ratio.isnull().all()) for result in _of("edges", results).values()):
            raise InputError(
                f"no run of {label} tells clean from corrupted sequences apart: there is nothing to be carried; take "
                "another --corruption, --metrics, --step or other runs"
            )
        chosen = edges(runs[0].model(options.step), embeddings=options.embeddings)
        publish("edges", label, runs, results, _shown(results, chosen, options), options.out)


def edges_run(run: Run, options: Edges) -> dict[str, xr.Dataset]:
    """The sweep over all edges of one run, its estimates and their error, a dataset a skill; and the roles of heads."""
    model, named = run.model(options.step), last_roles(run)
    results = {"roles": xr.Dataset({"component": ("role", list(named))}, coords={"role": list(named.values())})}
    for skill, pairs in _pairs(run, options).items():
        values = patch_edges(
            model,
            pairs,
            embeddings=options.embeddings,
            metrics=[_METRICS[name] for name in options.metrics],
            effect=options.effect,
            freeze=options.freeze,
        )
        results[f"edges_{skill}"] = xr.merge([values, effects(values, refuse=False)], combine_attrs="override")
        for name, result in _estimated(model, pairs, values, options).items():
            results[f"{name}_{skill}"] = result
    return results


def _pairs(run: Run, options: Edges) -> dict[str, PromptPairs]:
    """Clean and corrupted prompts of every skill."""
    task, seed = run.spec.task, run.spec.seed
    kind = corruption(task, options.corruption)
    batch = task.monitor(options.n, split=options.split, generator=generator(seed, "edges", options.split))
    masks = task.skills(batch)
    for skill in options.skills:
        one_of("--skills", skill, masks)
    chosen = options.skills or tuple(masks)
    return {skill: PromptPairs.from_task(task, batch, kind=kind, skill=skill, seed=seed) for skill in chosen}


def _estimated(model: HookedModel, pairs: PromptPairs, values: xr.Dataset, options: Edges) -> dict[str, xr.Dataset]:
    """Effects by estimate, and how far they are from those of the sweep; nothing where none is asked for."""
    smooth = [metric for metric in _SMOOTH if metric.name in options.metrics]
    if not options.approximate or not smooth or options.effect != "total" or options.freeze:
        return {}
    exact = values.sel(metric=[metric.name for metric in smooth])
    estimates = [
        estimate(model, pairs, embeddings=options.embeddings, metrics=smooth) for estimate in _ESTIMATES.values()
    ]
    found = {
        "estimates": [effects(estimate, refuse=False)[["ratio"]] for estimate in estimates],
        "errors": [approximation(estimate, exact) for estimate in estimates],
    }
    names = xr.DataArray(list(_ESTIMATES), dims="estimate", name="estimate")
    return {name: xr.concat(parts, names, combine_attrs="drop_conflicts") for name, parts in found.items()}


def _of(name: str, results: Results) -> dict[str, xr.Dataset]:
    """Skill to result."""
    return {key.removeprefix(f"{name}_"): result for key, result in results.items() if key.startswith(f"{name}_")}


def _shown(results: Results, chosen: Sequence[Edge], options: Edges) -> Shown:
    found, estimates, component = _of("edges", results), _of("estimates", results), results["roles"].component
    first = next(iter(found.values()))
    attrs, n_edges = first.attrs, first.sizes["edge"]
    frozen = "" if attrs["frozen"] == "nothing" else f", {attrs['frozen']} frozen"
    tables, figures, notes = [], [], [*NOTES, *([ESTIMATED] if estimates else [])]
    for metric in options.metrics:
        title = f"{metric} under patches of single edges, {attrs['pairs']}, {options.effect} effect{frozen}"
        header, rows = edge_header(found), effect_rows(found, metric)
        most = f"; the {MOST} largest of {n_edges}" if n_edges > MOST else ""
        tables.append(Table(name=metric, title=title + most, header=header, rows=rows))
        for skill, result in found.items():
            drawn = role_circuit(chosen, result.ratio.sel(direction="noising", metric=metric), component)
            if drawn is not None:
                figures.append((f"{skill}: necessity, {drawn[0]}; {title}.", drawn[1]))
        if estimates and metric in next(iter(estimates.values())).metric:
            tables += _estimate_tables(results, metric)
            title = f"{metric}: necessity of every edge in every seed, estimated and exact; on the line they are equal."
            figures.append((title, estimate_figure(found, estimates, metric)))
    return Shown(tables=tables, figures=figures, notes=notes + ([ELSEWHERE] if some_lack(found) else []))


def _estimate_tables(results: Results, metric: str) -> list[Table]:
    found, estimates = _of("edges", results), _of("estimates", results)
    beside, errors = estimate_rows(found, estimates, metric), error_rows(_of("errors", results), metric)
    title, of_errors = f"{metric}: necessity beside its estimates", f"{metric}: error of the estimates on each model"
    return [
        Table(name=f"{metric}-estimates", title=title, header=estimate_header(estimates), rows=beside),
        Table(name=f"{metric}-errors", title=of_errors, header=ERROR_HEADER, rows=errors, n_text=3),
    ]
