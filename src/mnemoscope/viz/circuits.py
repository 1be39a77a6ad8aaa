"""Circuits read from weights: rows of text and figures."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz.figures import heatmaps
from mnemoscope.viz.tables import spread

HEADER = (
    "head",
    "OV copying",
    "same token",
    "previous pos",
    "pattern: R²",
    "pattern: KL",
    "zeros: R²",
    "mean: R²",
)


def circuit_rows(results: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """For every role: what OV and QK circuits look like, and how well they predict the pattern and the removal.

    Args:
        results: From `read_circuits`, by role and along `seed`.
    """
    heads, patterns, removal = (results[name] for name in ("heads", "patterns", "removal"))
    rows = []
    for role in heads.role.values:
        at, pattern = heads.sel(role=role), patterns.sel(role=role, part="all")
        removed = removal.sel(role=role, read="circuit").r2
        cells = [
            (at.copying_score, ".2f"),
            (at.same_token, ".1f"),
            (at.offset_affinity.sel(offset=1), ".1f"),
            (pattern.r2, ".2f"),
            (pattern.kl, ".3f"),
            (removed.sel(kind="zero"), ".2f"),
            (removed.sel(kind="mean"), ".2f"),
        ]
        rows.append([str(role), *(spread(cell, form) for cell, form in cells)])
    return rows


COMPOSITION_HEADER = ("writer", "reader", "through", "score", "above random (sd)")


def composition_rows(composition: xr.Dataset, *, top: int = 12) -> list[list[str]]:
    """The pairs of heads of one run that compose most above the random baseline."""
    found = composition.z.stack(pair=[str(dim) for dim in composition.z.dims]).dropna("pair")
    rows = []
    for i in found.values.argsort()[::-1][:top]:
        labels = dict(zip(found.indexes["pair"].names, found.pair.values[i], strict=True))
        cell = composition.sel(labels)
        writer, reader = ([str(labels[name]) for name in labels if name.startswith(w)] for w in ("writer", "reader"))
        rows.append(
            [
                " ".join(writer),
                " ".join(reader),
                str(labels["through"]),
                f"{float(cell.score):.3f}",
                f"{float(cell.z):.1f}",
            ]
        )
    return rows


def circuit_figures(results: Mapping[str, xr.Dataset]) -> dict[str, go.Figure]:
    """Heatmaps of all parts of the QK and OV circuits of every role, mean over seeds, by caption."""
    qk, ov = (results[name].mean("seed") for name in ("qk", "ov"))
    figures = {}
    for role in qk.role.values:
        parts = {
            f"{query} to {key}": qk[f"{short}_{other}"].sel(role=role, drop=True)
            for query, short in (("token", "token"), ("position", "pos"))
            for key, other in (("token", "token"), ("position", "pos"))
        }
        figures[f"{role}: QK circuit, attention scores; rows are queries, columns keys"] = heatmaps(parts)
        writes = {"from token": ov.token_logit, "from position": ov.pos_logit}
        panels = {name: array.sel(role=role, drop=True) for name, array in writes.items()}
        figures[f"{role}: OV circuit, logits at full attention"] = heatmaps(panels)
    return figures
