"""`mnemoscope patch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import OfPairs
from mnemoscope.cli.pairs import by_skill, metrics, pairs_by_skill, refuse_unknown
from mnemoscope.core.site import Kind


@dataclass(frozen=True, kw_only=True)
class Patch(OfPairs):
    """Activation patching: which activations carry the difference between clean and corrupted sequences."""

    kind: Kind = "resid_pre"
    """Activation, in TransformerLens's words."""
    over: tuple[str, ...] = ("layer", "pos")
    """Its axes to sweep, such as layer pos, layer head, layer pos head, layer head query key, layer neuron."""
    metrics: tuple[str, ...] = ()
    """logit_diff (the default), log_prob, prob, accuracy, kl; of vectors error_diff, squared_error, distance."""


NOTES = (
    "An activation of one run in place of that of the other. Noising puts corrupted activations into the clean run: "
    "necessity is the share of the difference between clean and corrupted prompts that is lost. Denoising puts clean "
    "ones into the corrupted run: sufficiency is the share that comes back. Each is a ratio of means over prompts. The "
    "first row is the difference itself: below 0 the model prefers the other answer, and shares are of that.",
    "This shows which activations carry what the two prompts differ in. What both have in common is left alone, and "
    "parts that can stand in for each other look unneeded. A dash: clean and corrupted are not told apart.",
)


def patch_run(run: ms.Run, options: Patch) -> dict[str, xr.Dataset]:
    """Values and effects of the sweep on one run, one dataset per skill; heads by role.

    As many prompts as sequences are drawn, those that test the skill first, then NaN: how many do may differ between
    seeds, which are put together.
    """
    batch, results = drawn(run, options, "patch"), {}
    model, named = run.hooked(options.step), ms.analyses.last_roles(run) if "head" in options.over else None
    chosen = metrics("--metrics", options.metrics) or None
    for skill, pairs in pairs_by_skill(run, options, batch).items():
        values = ms.patch(model, pairs, kind=options.kind, over=options.over, metrics=chosen)
        result = xr.merge([values, ms.analyses.effects(values, refuse=False)], combine_attrs="override")
        result = result.reindex(prompt=range(len(batch)))
        results[f"patch_{skill}"] = result if named is None else ms.analyses.by_role(result, named)
    return results


def _shown(results: Results, options: Patch, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import carried
    from mnemoscope.viz.patching import patching_figure, patching_table

    found = by_skill("patch", results)
    first = next(iter(found.values()))
    tables, figures = [], []
    for metric in first.metric.values.tolist():
        title = f"{metric} under patches of {options.kind}, {first.attrs['pairs']}"
        tables.append(patching_table(found, metric, title))
        figures.append((f"{title}, mean over seeds.", patching_figure(found, metric)))
    return Shown(finding=carried(found, what=options.kind), tables=tables, figures=figures, notes=NOTES)


def _check(options: Patch) -> None:
    metrics("--metrics", options.metrics)


def _finish(label: str, runs: Sequence[ms.Run], results: Results, options: Patch) -> Results:
    ratios = {name: result.ratio for name, result in results.items()}
    refuse_unknown(label, ratios, missing="nothing to be carried", option="--metrics")
    return {name: result.dropna("prompt", how="all", subset=["clean"]) for name, result in results.items()}


analysis_command("patch", Patch, measure=patch_run, show=_shown, check=_check, finish=_finish, vectors=True)
