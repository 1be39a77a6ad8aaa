"""Path patching over seeds (`analyses.patching`): all edges for each skill, with or as estimates by gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
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
from mnemoscope.records.pairs import (
    PatchSweepOptions,
    add_effects,
    check_metrics,
    describe_costliest,
    edges_by_role,
    feature_notes,
    heads_with_roles,
    metrics,
    name_by_skill,
    pairs_by_skill,
    refuse_undefined,
)
from mnemoscope.records.record import MeasuredRuns, Results, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Edges(PatchSweepOptions, AuditOptions):
    """Path patching: which connections between parts carry the difference between clean and corrupted sequences.

    Noising (necessity) patches the clean run with the corrupted one, denoising (sufficiency) the other way round.
    """

    method: Literal["patch", "eap", "eap-ig"] = "patch"
    """Patch every edge; or estimate patches by gradients alone: a few passes, whatever the number of edges."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    effect: Literal["total", "direct"] = "total"
    """All that follows from the reader's change, or what its own output does to the logits."""
    freeze: tuple[Literal["attention", "layer_norm"], ...] = ()
    """Activations that keep their values of the unchanged run: attention, layer_norm."""
    approximate: bool = True
    """Estimate by gradients beside patches (EAP, EAP-IG): total effects, nothing frozen, of metrics that are smooth."""


LIMITS = (
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

ALONE = (
    "Effects are estimates by gradients, and no edge was patched. An audit of estimates says whether these differ from "
    "0 over prompts; it does not say that the effects of patches do. Patch the edges that it finds: --method patch."
)

MOST = 40
"""Most edges of a table."""
TOP = (3, 5)
"""Largest effects whose overlap is shown."""
_SMOOTH = ("logit_diff", "log_prob", "prob", "error_diff", "squared_error")
"""Accuracy has no gradient, and a divergence from the clean run none there."""


def measure(run: ms.Run, options: Edges) -> dict[str, xr.Dataset]:
    """The sweep over all edges of one run, its estimates and their error, a dataset a skill; and the roles of heads."""
    model, chosen = run.hooked(options.step), metrics("--metrics", options.metrics) or None
    results = {"roles": heads_with_roles(run)}
    by_skill = pairs_by_skill(run, options, draw_sequences(run, options, "edges"))
    kinds = {"embeddings": options.embeddings, "effect": options.effect, "freeze": options.freeze}

    def sweep(model: ms.HookedModel, skill: str) -> xr.Dataset:
        if options.method == "patch":
            return ms.patch_edges(model, by_skill[skill], metrics=chosen, **kinds)
        found = _estimators()[options.method.upper()](
            model, by_skill[skill], metrics=chosen, embeddings=options.embeddings
        )
        return found.drop_vars("unexplained", errors="ignore")

    values = {skill: sweep(model, skill) for skill in by_skill}
    for skill, pairs in by_skill.items():
        results[f"edges_{skill}"] = add_effects(values[skill])
        for name, result in _estimate_effects(model, pairs, values[skill], options).items():
            results[f"{name}_{skill}"] = result
    prompts = {skill: pairs.clean for skill, pairs in by_skill.items()}
    audits = audit_run(run, options, values, prompts, sweep)
    return {**results, **{f"audit_{skill}": audit for skill, audit in audits.items()}}


def _estimate_effects(
    model: ms.HookedModel, pairs: ms.PromptPairs, values: xr.Dataset, options: Edges
) -> dict[str, xr.Dataset]:
    """Effects by estimate, and their distance from those of the sweep; nothing where no estimate is wanted."""
    from mnemoscope.analyses.estimates import approximation

    smooth = metrics("--metrics", [name for name in _SMOOTH if name in values.metric])
    patched = options.method == "patch" and options.effect == "total" and not options.freeze
    if not options.approximate or not smooth or not patched:
        return {}
    exact = values.sel(metric=[metric.name for metric in smooth])
    by_name = _estimators()
    estimates = [estimate(model, pairs, embeddings=options.embeddings, metrics=smooth) for estimate in by_name.values()]
    found = {
        "estimates": [ms.analyses.effects(estimate, refuse=False)[["ratio"]] for estimate in estimates],
        "errors": [approximation(estimate, exact) for estimate in estimates],
    }
    names = xr.DataArray(list(by_name), dims="estimate", name="estimate")
    return {name: xr.concat(parts, names, combine_attrs="drop_conflicts") for name, parts in found.items()}


def _estimators() -> dict[str, Any]:
    from mnemoscope.analyses.estimates import attribute_edges, integrate_edges

    return {"EAP": attribute_edges, "EAP-IG": integrate_edges}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The largest edges, and estimates beside them with their errors, for every metric."""
    found, estimates, errors = (name_by_skill(name, measured.results) for name in ("edges", "estimates", "errors"))
    found_tables = []
    for metric, title in _metric_titles(measured).items():
        found_tables.append(edge_table(found, metric, title))
        if estimates and metric in next(iter(estimates.values())).metric:
            found_tables += [estimate_table(found, estimates, metric), error_table(errors, metric)]
    return [*audit_tables(measured), *found_tables]


def _metric_titles(measured: MeasuredRuns) -> dict[str, str]:
    first = next(iter(name_by_skill("edges", measured.results).values()))
    frozen = "" if first.attrs.get("frozen", "nothing") == "nothing" else f", {first.attrs['frozen']} frozen"
    done = "under patches of" if (method := measured.options.method) == "patch" else f"{method.upper()} estimates of"
    how = f"{done} single edges, {first.attrs['pairs']}, {measured.options.effect} effect{frozen}"
    return {metric: f"{metric} {how}" for metric in first.metric.values.tolist()}


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The edges drawn between parts, skill by skill, and estimates against exact effects."""
    from mnemoscope.interventions.graph import model_edges
    from mnemoscope.report.edges import role_circuit

    options, results = measured.options, measured.results
    chosen = model_edges(measured.runs[0].hooked(options.step), embeddings=options.embeddings)
    found, estimates = name_by_skill("edges", results), name_by_skill("estimates", results)
    drawings = []
    for metric, title in _metric_titles(measured).items():
        for skill, result in found.items():
            necessity = result.ratio.sel(direction="noising", metric=metric)
            drawing = role_circuit(chosen, necessity, results["roles"].component)
            if drawing is not None:
                drawings.append((f"{skill}: necessity, {drawing[0]}; {title}.", drawing[1]))
        if estimates and metric in next(iter(estimates.values())).metric:
            caption = (
                f"{metric}: necessity of every edge in every seed, estimated and exact; on the line they are equal."
            )
            drawings.append((caption, estimate_figure(found, estimates, metric)))
    return [*drawings, *audit_figures(measured)]


def finding(measured: MeasuredRuns) -> str:
    """The claims that an audit allows, and the single edge that costs most, by skill."""
    method = measured.options.method
    what = "single edges" if method == "patch" else f"single edges, estimated by {method.upper()},"
    return audit_finding(measured) + describe_costliest(name_by_skill("edges", measured.results), what=what)


def notes(measured: MeasuredRuns) -> list[str]:
    """The estimates, where there are some, features, and means over seeds that differ in their edges."""
    found = name_by_skill("edges", measured.results)
    estimated = [ESTIMATED] if name_by_skill("estimates", measured.results) else []
    alone = [ALONE] if measured.options.method != "patch" else []
    return [*alone, *estimated, *feature_notes(found), *([ELSEWHERE] if layers_differ(found) else [])]


def edge_table(effects: Mapping[str, xr.Dataset], metric: str, title: str) -> ms.report.Table:
    """The difference that is carried, then necessity and sufficiency of the largest edges in the order of the model.

    `effects` gives for every skill the effects of patching edges by role, along `seed`; all cells are mean [range] over
    seeds. A difference below 0 means that the model answers the other way round. Where not all seeds have all edges,
    the last column gives the number that do.
    """
    from mnemoscope.report.ablation import WORDS, by_direction, difference_row

    found = {skill: each.ratio.sel(metric=metric) for skill, each in effects.items()}
    first = next(iter(effects.values()))
    label, whole = difference_row(effects, metric)
    there = {label: (whole, first.sizes["seed"])}
    for edge in _largest_edges(found):
        cells = [each.sel(edge=edge, direction=d) for each in found.values() for d in each.direction.values]
        there[edge] = (cells, int((first.component.sel(edge=edge) != "").sum()))
    header = ["edge", *(f"{skill}, {WORDS[direction]}" for skill, direction, _ in by_direction(effects))]
    rows = [[name, *(ms.report.mean_with_range(cell, ".2f") for cell in cells)] for name, (cells, _) in there.items()]
    if layers_differ(effects):
        header.append("seeds that have it")
        rows = [[*row, str(n)] for row, (_, n) in zip(rows, there.values(), strict=True)]
    most = f"; the {MOST} largest of {first.sizes['edge']}" if first.sizes["edge"] > MOST else ""
    return ms.report.Table(name=metric, title=title + most, header=header, rows=rows)


def estimate_table(
    effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str
) -> ms.report.Table:
    """The necessity of every edge of `edge_table` beside its estimates along `estimate`, mean [range] over seeds."""
    exact = {skill: each.ratio.sel(metric=metric) for skill, each in effects.items()}
    columns = {}
    for skill, each in estimates.items():
        columns[f"{skill}, exact"] = exact[skill].sel(direction="noising")
        for guess in each.ratio.sel(metric=metric, direction="noising").transpose("estimate", ...):
            columns[f"{skill}, {guess.estimate.item()}"] = guess
    rows = [
        [edge, *(ms.report.mean_with_range(column.sel(edge=edge), ".2f") for column in columns.values())]
        for edge in _largest_edges(exact)
    ]
    title = f"{metric}: necessity beside its estimates"
    return ms.report.Table(name=f"{metric}-estimates", title=title, header=["edge", *columns], rows=rows)


def error_table(errors: Mapping[str, xr.Dataset], metric: str) -> ms.report.Table:
    """The distance of each estimate from the exact sweep of its model, along `estimate`; mean [range] over seeds."""
    from mnemoscope.report.ablation import WORDS

    rows = []
    for skill, found in errors.items():
        for estimate, direction in product(found.estimate.values, found.direction.values):
            at = found.sel(metric=metric, estimate=estimate, direction=direction)
            cells = [at.pearson, at.sign_agreement, *(at.precision.sel(top=n) for n in TOP)]
            cells += [at.mean_absolute_error, at.relative_error]
            rows.append(
                [
                    skill,
                    str(estimate),
                    WORDS[str(direction)],
                    *(ms.report.mean_with_range(cell, ".2f") for cell in cells),
                ]
            )
    overlaps = [f"overlap of the top {n}" for n in TOP]
    header = ["skill", "estimate", "of", "Pearson", "sign agreement", *overlaps, "mean absolute error", "relative"]
    title = f"{metric}: error of the estimates on each model"
    return ms.report.Table(name=f"{metric}-errors", title=title, header=header, rows=rows, n_text=3)


def estimate_figure(effects: Mapping[str, xr.Dataset], estimates: Mapping[str, xr.Dataset], metric: str) -> Any:
    """Estimated against exact necessity of every edge in every seed, one panel per skill."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(1, len(effects), subplot_titles=list(effects), shared_yaxes=True)
    at = {"metric": metric, "direction": "noising"}
    for column, (skill, found) in enumerate(effects.items(), 1):
        exact = found.ratio.sel(at).transpose("seed", "edge")
        ends = [min(0.0, float(exact.min())), max(1.0, float(exact.max()))] if exact.notnull().any() else [0.0, 1.0]
        line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": "#b8bfca", "width": 1}, hoverinfo="skip")
        figure.add_trace(line.update(showlegend=False), 1, column)
        labels = [f"{edge}, seed {seed}" for seed in exact.seed.values for edge in exact.edge.values]
        for estimate, colour in zip(estimates[skill].estimate.values, ms.report.PALETTE[:2], strict=True):
            guess = estimates[skill].ratio.sel(at).sel(estimate=estimate).transpose("seed", "edge")
            dots = go.Scatter(
                x=exact.values.ravel(),
                y=guess.values.ravel(),
                text=labels,
                mode="markers",
                marker={"color": colour, "size": 6, "opacity": 0.6},
                name=str(estimate),
                legendgroup=str(estimate),
                showlegend=column == 1,
                hovertemplate=f"%{{text}}: %{{x:.3f}}, {estimate} %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(dots, 1, column)
    figure.update_xaxes(title="necessity, exact")
    figure.update_yaxes(title="estimated", row=1, col=1)
    return figure.update_layout(**ms.report.LAYOUT, height=400)


def _largest_edges(found: Mapping[str, xr.DataArray]) -> list[str]:
    """The edges whose effect is largest for some skill, in their order."""
    import numpy as np

    sizes = [abs(each.mean("seed")).max("direction") for each in found.values()]
    size = np.nanmax(np.stack([np.nan_to_num(each.values, nan=-1) for each in sizes]), 0)
    largest = sorted(np.argsort(-size, kind="stable")[:MOST])
    edges = next(iter(found.values())).edge.values
    return [str(edges[i]) for i in largest]


def layers_differ(effects: Mapping[str, xr.Dataset]) -> bool:
    """True if heads of one role lie in different layers, so that seeds differ in their edges."""
    return bool((next(iter(effects.values())).component == "").any())


def check(options: Edges) -> None:
    """Refuse unknown metrics, options of an audit that do not fit, and estimates of anything but total effects."""
    check_metrics(options)
    check_audit(options)
    if options.method != "patch" and (options.effect != "total" or options.freeze):
        given = f"--freeze {' '.join(options.freeze)}" if options.freeze else f"--effect {options.effect}"
        raise ms.InputError(
            f"--method {options.method} estimates total effects with nothing frozen; got {given}; take --method patch"
        )


def finish(label: str, measured: MeasuredRuns) -> Results:
    """Edges by role; refused where no seed tells the sequences apart."""
    results = edges_by_role(measured.results)
    ratios = {skill: result.ratio for skill, result in name_by_skill("edges", results).items()}
    refuse_undefined(label, ratios, missing="nothing to be carried", option="--metrics")
    return results


register_module(
    __name__,
    Edges,
    source="Goldowsky-Dill et al. 2023 (path patching), Syed et al. 2023 (EAP), Hanna et al. 2024 (EAP-IG)",
    vectors=True,
)
