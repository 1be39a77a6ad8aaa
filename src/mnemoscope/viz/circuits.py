"""Circuits read from weights: tables and figures."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz.figures import heatmaps
from mnemoscope.viz.tables import Table, single, spread


def circuit_tables(results: Mapping[str, xr.Dataset]) -> list[Table]:
    """For every role: the shape of OV and QK circuits, and how well they predict the pattern and the removal.

    Then the heads that compose most, where `read_circuits` (by role, along `seed`) read composition.
    """
    heads, patterns, removal = (results[name] for name in ("heads", "patterns", "removal"))
    removed = removal.r2.sel(read="circuit")
    columns = {
        "OV copying": (heads.copying_score, ".2f"),
        "same token": (heads.same_token, ".1f"),
        "previous position": (heads.offset_affinity.sel(offset=1), ".1f"),
        "pattern: R²": (patterns.r2.sel(part="all"), ".2f"),
        "pattern: KL": (patterns.kl.sel(part="all"), ".3f"),
        "zeros: R²": (removed.sel(kind="zero"), ".2f"),
        "mean: R²": (removed.sel(kind="mean"), ".2f"),
    }
    rows = [
        [str(role), *(spread(values.sel(role=role), form) for values, form in columns.values())]
        for role in heads.role.values
    ]
    title = "circuits read from the weights, and how well they predict"
    summary = Table(name="summary", title=title, header=("head", *columns), rows=rows)
    return [summary, *([composition_table(results["composition"])] if "composition" in results else [])]


def composition_table(composition: xr.Dataset, *, top: int = 12) -> Table:
    """The pairs of heads of the first seed that compose most above the random baseline."""
    first = composition.isel(seed=0)
    found = first.z.stack(pair=[str(dim) for dim in first.z.dims]).dropna("pair")
    rows = []
    for i in found.values.argsort()[::-1][:top]:
        labels = dict(zip(found.indexes["pair"].names, found.pair.values[i], strict=True))
        cell = first.sel(labels)
        heads = [" ".join(str(labels[name]) for name in labels if name.startswith(w)) for w in ("writer", "reader")]
        rows.append([*heads, str(labels["through"]), single(float(cell.score), ".3f"), single(float(cell.z), ".1f")])
    return Table(
        name="most-composed",
        title=f"composition of heads, seed {int(first.seed)}",
        header=("writer", "reader", "through", "score", "above random (sd)"),
        rows=rows,
        n_text=3,
    )


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
