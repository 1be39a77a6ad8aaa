"""The audit of records (`analyses.auditing`): its options, its results for one run, and their display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.records.record import MeasuredRuns, Options, Results, xr

AUDIT = "audit"
"""Results of audits are called so, or begin so and end with the skill."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions(Options):
    """Options of analyses that can be audited."""

    audit: bool = False
    """Audit every part: could its effect be chance (p, q over all parts), and how large is it on prompts that had no
    part in the choice?"""
    audit_null: Literal["signs", "heads", "labels", "untrained"] | None = None
    """Null of the audit: effects symmetric about 0 (signs), heads of the layer (heads), dealt labels (labels), or the
    model before training (untrained). None: labels for probes, else signs."""
    audit_clusters: str | None = None
    """Latent of the task: sequences of one value count as one observation; none: those that the task names."""
    audit_rate: float = 0.05
    """False-discovery rate of the audit."""


def check_audit(options: AuditOptions) -> None:
    """Refuse options of an audit that do not fit."""
    in_range("--audit-rate", options.audit_rate, 1e-6, 0.5)
    if not options.audit and (options.audit_null or options.audit_clusters):
        raise InputError("--audit-null and --audit-clusters are about an audit; add --audit, or leave them out")


def audit_run(
    run: ms.Run,
    options: AuditOptions,
    results: Mapping[str, xr.Dataset],
    batches: Mapping[str, ms.Batch],
    again: Callable[[ms.HookedModel, str], xr.Dataset],
) -> dict[str, xr.Dataset]:
    """The audits of one run's results, by the same names; nothing unless it is wanted.

    Results keep their prompts, which are those of `batches`; `again` measures a result on another model. Whether a cell
    is found or confirmed becomes 1 or 0, so that seeds that lack it can have NaN.
    """
    if not options.audit:
        return {}
    from mnemoscope.analyses.probe_rows import latent_values

    untrained = run.untrained(own=True) if options.audit_null == "untrained" else None
    latent = options.audit_clusters
    named = None
    if latent is not None:
        named = {name: latent_values(batch, latent)[:, 0].cpu().numpy() for name, batch in batches.items()}
    audits = ms.analyses.audit_together(
        results,
        null=None if options.audit_null == "untrained" else options.audit_null,
        against=None if untrained is None else {name: again(untrained, name) for name in results},
        clusters=named,
        rate=options.audit_rate,
        seed=run.spec.seed,
    )
    return {
        name: audit.assign({key: audit[key].astype(float) for key in ("found", "confirmed")})
        for name, audit in audits.items()
    }


def audits_of(results: Results) -> dict[str, xr.Dataset]:
    """The audits among the results, by skill; one of several skills as `all`."""
    found = {name.removeprefix(AUDIT).removeprefix("_"): result for name, result in results.items() if _is_audit(name)}
    return {skill or "all": result for skill, result in found.items()}


def _is_audit(name: str) -> bool:
    return name == AUDIT or name.startswith(f"{AUDIT}_")


def audit_tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The table of the audit, where there is one."""
    from mnemoscope.report.audits import audit_table

    audits = audits_of(measured.results)
    return [audit_table(audits)] if audits else []


def audit_figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The figure of the audit with its caption, where there is one and something was found."""
    from mnemoscope.report.audits import audit_figure

    audits = audits_of(measured.results)
    drawn = audit_figure(audits) if audits else None
    caption = "Effects with 95 % intervals, on the prompts that chose and on those that had no part in the choice."
    return [] if drawn is None else [(caption, drawn)]


def audit_finding(measured: MeasuredRuns) -> str:
    """The claims that an audit allows, with a space behind them; empty without an audit."""
    from mnemoscope.report.audits import audit_sentence

    audits = audits_of(measured.results)
    return f"{audit_sentence(audits)} " if audits else ""
