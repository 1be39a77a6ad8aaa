"""Activation patching over seeds (`analyses.patching`), swept for each skill, heads by role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.core.site import Kind
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
class Patch(PatchSweepOptions):
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
    for skill, pairs in pairs_by_skill(run, options, batch).items():
        values = ms.patch(model, pairs, kind=options.kind, over=options.over, metrics=chosen)
        result = add_effects(values).reindex(prompt=range(len(batch)))
        results[f"patch_{skill}"] = result if named is None else ms.analyses.by_role(result, named)
    return results


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Necessity and sufficiency of every cell, a table a metric."""
    from mnemoscope.report.ablation import patching_table

    found = name_by_skill("patch", measured.results)
    return [patching_table(found, metric, title) for metric, title in _metric_titles(measured).items()]


def _metric_titles(measured: MeasuredRuns) -> dict[str, str]:
    first = next(iter(name_by_skill("patch", measured.results).values()))
    where = f"under patches of {measured.options.kind}, {first.attrs['pairs']}"
    return {metric: f"{metric} {where}" for metric in first.metric.values.tolist()}


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """A heatmap for each skill and direction, a figure a metric."""
    found = name_by_skill("patch", measured.results)
    titles = _metric_titles(measured)
    return [
        (f"{title}, mean over seeds.", ms.report.patching_figure(found, metric)) for metric, title in titles.items()
    ]


def finding(measured: MeasuredRuns) -> str:
    """The single patch that costs most, by skill."""
    return describe_costliest(name_by_skill("patch", measured.results), what=measured.options.kind)


check = check_metrics


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
