"""Activation patching over seeds (`analyses.patching`), swept for each skill, heads by role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.core.site import Kind
from mnemoscope.records.audits import (
    AuditOptions,
    audit_figures,
    audit_finding,
    audit_run,
    audit_tables,
    audits_of,
    check_audit,
)
from mnemoscope.records.pairs import (
    PatchSweepOptions,
    add_effects,
    check_metrics,
    describe_costliest,
    metrics,
    name_by_skill,
    pairs_by_skill,
    refuse_undefined,
)
from mnemoscope.records.record import MeasuredRuns, Results, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Patch(PatchSweepOptions, AuditOptions):
    """Activation patching: which activations carry the difference between clean and corrupted sequences.

    Noising (necessity) puts corrupted activations into the clean run, denoising (sufficiency) the other way round.
    """

    kind: Kind = "resid_pre"
    """Activation, in TransformerLens's words."""
    over: tuple[str, ...] = ("layer", "pos")
    """Its axes to sweep, such as layer pos, layer head, layer pos head, layer head query key, layer neuron."""


LIMITS = (
    "An activation of one run in place of that of the other. Noising puts corrupted activations into the clean run: "
    "necessity is the share of the difference between clean and corrupted prompts that is lost. Denoising puts clean "
    "ones into the corrupted run: sufficiency is the share that comes back. Each is a ratio of means over prompts. The "
    "first row is the difference itself: below 0 the model prefers the other answer, and shares are of that.",
    "This shows which activations carry what the two prompts differ in. What both have in common is left alone, and "
    "parts that can stand in for each other look unneeded. A dash: clean and corrupted are not told apart.",
)


def measure(run: ms.Run, options: Patch) -> dict[str, xr.Dataset]:
    """Values and effects of the sweep on one run, one dataset per skill; heads by role.

    Every dataset has as many prompts as sequences are drawn: those that test the skill, then NaN. Their number may
    differ between seeds, which are put together.
    """
    batch, results = draw_sequences(run, options, "patch"), {}
    model, named = run.hooked(options.step), ms.analyses.last_roles(run) if "head" in options.over else None
    chosen = metrics("--metrics", options.metrics) or None
    by_skill = pairs_by_skill(run, options, batch)

    def sweep(model: ms.HookedModel, skill: str) -> xr.Dataset:
        found = ms.patch(model, by_skill[skill], kind=options.kind, over=options.over, metrics=chosen)
        return found.rename(neuron="feature") if options.kind == "feature" and "neuron" in found.dims else found

    values = {skill: sweep(model, skill) for skill in by_skill}
    for skill, each in values.items():
        results[f"patch_{skill}"] = add_effects(each).reindex(prompt=range(len(batch)))
    prompts = {skill: pairs.clean for skill, pairs in by_skill.items()}
    for skill, audit in audit_run(run, options, values, prompts, sweep).items():
        results[f"audit_{skill}"] = audit
    return results if named is None else {name: ms.analyses.by_role(each, named) for name, each in results.items()}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Necessity and sufficiency of every cell, a table a metric."""
    from mnemoscope.report.ablation import patching_table

    found = name_by_skill("patch", measured.results)
    shown = [patching_table(found, metric, title) for metric, title in _metric_titles(measured).items()]
    return [*audit_tables(measured), *shown]


def _metric_titles(measured: MeasuredRuns) -> dict[str, str]:
    first = next(iter(name_by_skill("patch", measured.results).values()))
    where = f"under patches of {measured.options.kind}, {first.attrs['pairs']}"
    return {metric: f"{metric} {where}" for metric in first.metric.values.tolist()}


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """A heatmap for each skill and direction, a figure a metric."""
    found = name_by_skill("patch", measured.results)
    titles, audits = _metric_titles(measured), audits_of(measured.results)
    marked = " Ticks: confirmed by the audit; rings: found, not confirmed." if audits else ""
    shown = [
        (f"{title}, mean over seeds.{marked}", ms.report.patching_figure(found, metric, audits))
        for metric, title in titles.items()
    ]
    return [*shown, *audit_figures(measured)]


def finding(measured: MeasuredRuns) -> str:
    """The claims that an audit allows, and the single patch that costs most, by skill."""
    costliest = describe_costliest(name_by_skill("patch", measured.results), what=measured.options.kind)
    return audit_finding(measured) + costliest


def check(options: Patch) -> None:
    """Refuse unknown metrics, and options of an audit that do not fit."""
    check_metrics(options)
    check_audit(options)


def finish(label: str, measured: MeasuredRuns) -> Results:
    """The results without the prompts that no seed has; refused where no seed tells the sequences apart."""
    ratios = {skill: result.ratio for skill, result in name_by_skill("patch", measured.results).items()}
    refuse_undefined(label, ratios, missing="nothing to be carried", option="--metrics")
    return {
        name: result.dropna("prompt", how="all", subset=["clean"]) if "prompt" in result.dims else result
        for name, result in measured.results.items()
    }


register_module(
    __name__,
    Patch,
    source="activation patching: Vig et al. 2020, Meng et al. 2022; directions as in Heimersheim and Nanda 2024",
    vectors=True,
)
