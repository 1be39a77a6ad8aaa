"""OV and QK circuits read from a run's weights (`analyses.head_circuits`): scores, and how well they predict causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.records.record import MeasuredRuns, Options, Results, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Circuits(Options):
    """OV and QK circuits read from the weights, copying and composition scores, and how well they predict causes."""

    n: int = 1024
    """Sequences of each subgroup; others name the heads."""


LIMITS = (
    "Circuits are read from the weights with LayerNorm linearised at its mean scale, tokens and positions apart, up to "
    "constants that a softmax takes away. In later layers they are the direct path from the embeddings only.",
    "What weights say is not what a head causes: the last columns compare. 'pattern' is the attention predicted from "
    "the QK circuit against the one that occurs, 'zeros' and 'mean' the change of the logits predicted from the OV "
    "circuit against the one that removing the head brings. R² near 0: the read says nothing about the effect.",
)


def measure(run: ms.Run, options: Circuits) -> dict[str, xr.Dataset]:
    """Read the circuits of one run; heads have their roles as names, but for composition, where they have numbers."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = draw_sequences(run, options, "circuits")
    reference = task.sample(options.n, split=split, generator=ms.generator(seed, "reference", split))
    results = ms.analyses.read_circuits(run.hooked(options.step), batch, reference=reference, seed=seed)
    named = ms.analyses.last_roles(run)
    return {
        name: result if name == "composition" else ms.analyses.by_role(result, named)
        for name, result in results.items()
    }


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The shape of the circuits of every head and what they predict; the heads that compose most, if they can."""
    return circuit_tables(measured.results)


def circuit_tables(results: Results) -> list[ms.report.Table]:
    """For every role: the shape of OV and QK circuits, and how well they predict the pattern and the removal.

    If `read_circuits` (by role, along `seed`) read composition, a table of the heads that compose most follows.
    """
    heads, patterns, removal = (results[name] for name in ("heads", "patterns", "removal"))
    removed = removal.r2.sel(read="circuit")
    columns = {
        **({"OV copying": (heads.copying_score, ".2f")} if "copying_score" in heads else {}),
        "same token": (heads.same_token, ".1f"),
        "previous position": (heads.offset_affinity.sel(offset=1), ".1f"),
        "pattern: R²": (patterns.r2.sel(part="all"), ".2f"),
        "pattern: KL": (patterns.kl.sel(part="all"), ".3f"),
        "zeros: R²": (removed.sel(kind="zero"), ".2f"),
        "mean: R²": (removed.sel(kind="mean"), ".2f"),
    }
    rows = [
        [str(role), *(ms.report.mean_with_range(values.sel(role=role), form) for values, form in columns.values())]
        for role in heads.role.values
    ]
    title = "circuits read from the weights, and how well they predict"
    summary = ms.report.Table(name="summary", title=title, header=("head", *columns), rows=rows)
    return [summary, *([composition_table(results["composition"])] if "composition" in results else [])]


def composition_table(composition: xr.Dataset, *, top: int = 12) -> ms.report.Table:
    """The pairs of heads of the first seed that compose most above the random baseline."""
    first = composition.isel(seed=0)
    found = first.z.stack(pair=[str(dim) for dim in first.z.dims]).dropna("pair")
    rows = []
    for i in found.values.argsort()[::-1][:top]:
        labels = dict(zip(found.indexes["pair"].names, found.pair.values[i], strict=True))
        cell = first.sel(labels)
        heads = [" ".join(str(labels[name]) for name in labels if name.startswith(w)) for w in ("writer", "reader")]
        numbers = [ms.report.single_number(float(cell.score), ".3f"), ms.report.single_number(float(cell.z), ".1f")]
        rows.append([*heads, str(labels["through"]), *numbers])
    return ms.report.Table(
        name="most-composed",
        title=f"composition of heads, seed {int(first.seed)}",
        header=("writer", "reader", "through", "score", "above random (sd)"),
        rows=rows,
        n_text=3,
    )


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Both circuits of every head."""
    task = measured.runs[0].spec.task
    names = ms.report.token_symbols(task), ms.report.output_symbols(task)
    return list(circuit_figures(measured.results, *names).items())


def circuit_figures(
    results: Results, symbols: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> dict[str, Any]:
    """Heatmaps of all parts of the QK and OV circuits of every role, mean over seeds, by caption.

    `symbols` are the names of all tokens, none: their numbers; `outputs` those of all outputs, none: `symbols`.
    """
    from mnemoscope.report.figures import heatmaps

    qk, ov = (results[name].mean("seed") for name in ("qk", "ov"))
    found = {}
    for role in qk.role.values:
        parts = {
            f"{query} to {key}": qk[f"{short}_{other}"].sel(role=role, drop=True)
            for query, short in (("token", "token"), ("position", "pos"))
            for key, other in (("token", "token"), ("position", "pos"))
        }
        found[f"{role}: QK circuit, attention scores; rows are queries, columns keys"] = heatmaps(
            parts, symbols=symbols
        )
        writes = {"from token": ov.token_logit, "from position": ov.pos_logit}
        panels = {name: array.sel(role=role, drop=True) for name, array in writes.items()}
        found[f"{role}: OV circuit, logits at full attention"] = heatmaps(panels, symbols=symbols, outputs=outputs)
    return found


def finding(measured: MeasuredRuns) -> str:
    """The share of every head's attention scores that the linearised QK circuit explains, and its largest part."""
    from mnemoscope.report.findings import largest

    patterns, found = measured.results["patterns"], []
    for role in map(str, patterns.role.values):
        parts = patterns.share.sel(role=role).drop_sel(part=["all", "uniform"])
        top = largest(parts)
        whole = ms.report.mean_with_range(patterns.r2.sel(role=role, part="all"), ".2f")
        part = "" if top is None else top.place["part"].replace("_", " × ")
        most = "" if top is None else f", most by {part} ({ms.report.mean_with_range(top.values, '.2f')})"
        found.append(f"{role} R² {whole}{most}")
    return f"Attention scores explained by the linearised QK circuit: {'; '.join(found)}."


register_module(__name__, Circuits, source="Elhage et al. 2021 (OV and QK circuits, composition)")
