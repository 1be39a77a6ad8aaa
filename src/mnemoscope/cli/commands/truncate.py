"""`mnemoscope truncate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, drawn, xr
from mnemoscope.cli.options import AnalysisOptions
from mnemoscope.core.site import ParamSite


@dataclass(frozen=True, kw_only=True)
class Truncate(AnalysisOptions):
    """Weights replaced by low-rank parts of themselves: what the model says at every rank, skill by skill."""

    weights: tuple[str, ...] = ()
    """Such as "L1 W_out", "L1H0 W_O", W_E or blocks.1.mlp.W_out; joined by + to be cut together; none: the last MLP."""
    parts: tuple[Literal["top", "rest"], ...] = ("top", "rest")
    """top: the largest components up to the rank are kept; rest: they are removed."""
    ranks: tuple[int, ...] = ()
    """Where weights are cut; none: 0, 1, 2, 4 and so on to the full rank."""
    n: int = 512
    """Sequences of each subgroup."""


NOTES = (
    "A weight is replaced by part of its singular value decomposition: only its largest components up to a rank, or "
    "all but these. At full rank, or with none removed, the model is as it was; with none kept the weight is zero, but "
    "not its bias.",
    "This shows which predictions need the large and which the small singular directions, given the rest of the model "
    "as it is. It does not show what a direction means, nor that one with a large singular value is ever read.",
)


def truncate_run(run: ms.Run, options: Truncate) -> dict[str, xr.Dataset]:
    """The cuts of one run, with what the entry of its task adds."""
    from mnemoscope.analyses.token_scores import skill_targets

    model, task = run.hooked(options.step), run.spec.task
    batch = drawn(run, options, "truncation")
    weights = _weights(model, options.weights)
    cuts = {"weights": weights, "ranks": options.ranks or _ranks(model, weights), "parts": options.parts}
    targets = skill_targets(batch, {name: mask for name, mask in task.skills(batch).items() if mask.any()})
    added = ms.viz.report_of(task).truncation
    if added is None:
        return {"truncation": ms.analyses.truncate(model, batch, targets=targets, **cuts)}
    reference = drawn(run, options, "reference")
    return added.measure(model, task, batch, reference=reference, targets=targets, cuts=cuts)


def _weights(model: ms.HookedModel, names: Sequence[str]) -> ms.analyses.Weights:
    """The weights with these names, several joined by + together; none: those of the last MLP, or of the last heads."""
    if names:
        return {name: tuple(ParamSite.read(word.strip()) for word in name.split("+")) for name in names}
    if not model.cfg.attn_only:
        return ms.analyses.last_mlp(model)
    sites = [ParamSite(name=name, layer=model.cfg.n_layers - 1) for name in ("W_V", "W_O")]
    return {str(site): (site,) for site in sites}


def _ranks(model: ms.HookedModel, weights: ms.analyses.Weights) -> list[int]:
    """None, powers of two, and the largest full rank."""
    from mnemoscope.interventions.weights import weight_at

    full = max(min(weight_at(model, site).shape[-2:]) for sites in weights.values() for site in sites)
    return [0, *(2**i for i in range(full.bit_length()) if 2**i < full), full]


def _shown(results: Results, options: Truncate, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import ranks
    from mnemoscope.viz.truncation import spectrum_figure, truncation_figure, truncation_table

    found = results["truncation"]
    tables = [truncation_table(found, "probability"), truncation_table(found, "accuracy")]
    over = ", mean and range over seeds" if found.sizes["seed"] > 1 else ""
    figures = [
        (
            f"Probability of every target over the rank of the cut{over}; dotted: the intact model.",
            truncation_figure(found),
        ),
        ("Singular values, largest first; one line per seed.", spectrum_figure(found)),
    ]
    added = ms.viz.report_of(runs[0].spec.task).truncation
    if added is None:
        return Shown(finding=ranks(found), tables=tables, figures=figures, notes=NOTES)
    return Shown(
        finding=ranks(found), tables=[*tables, *added.tables(results)], figures=figures, notes=(*NOTES, added.note)
    )


analysis_command("truncate", Truncate, measure=truncate_run, show=_shown)
