"""Additions to `mnemoscope truncate` on noisy recall: noise token, output, and both without the last layer's parts."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from mnemoscope import Batch, HookedModel, Task
from mnemoscope.analyses import TokenTargets
from mnemoscope.report import Results, Table, mean_with_range
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import NOISE, OUTPUT, removed, truncated

NOTE = (
    "Noise token and output are looked for at every trigger that has occurred before, whichever of the two follows. "
    "The context share is the output's probability among the two. It also rises where both fall and the noise token "
    "falls further: read the probabilities beside it."
)
REMOVED_HEADER = ("removed", "replaced by", "probability of the noise token", "of the output", "context share")


def truncate_noisy(
    model: HookedModel, task: Task, batch: Batch, *, reference: Batch, targets: TokenTargets, cuts: Mapping[str, Any]
) -> dict[str, xr.Dataset]:
    """The cuts (`truncate`) of one model of noisy recall, with both targets besides, and removals if it has MLPs."""
    found = {"truncation": truncated(model, task, batch, besides=targets, **cuts)}
    return found if model.cfg.attn_only else {**found, "removed": removed(model, task, batch, reference=reference)}


def removed_tables(results: Results) -> list[Table]:
    """The table of removals, if there were any."""
    if "removed" not in results:
        return []
    title = "noise token and output without a part of the last layer"
    rows = removed_rows(results["removed"])
    return [Table(name="removed", title=title, header=REMOVED_HEADER, rows=rows, n_text=2)]


def removed_rows(found: xr.Dataset) -> list[list[str]]:
    """The intact model, then without the last attention layer and the last MLP; mean [range] over seeds."""
    clean = [*(found.clean_probability.sel(target=name) for name in (NOISE, OUTPUT)), found.clean_context_share]
    rows = [["nothing", "", *(mean_with_range(cell, ".3f") for cell in clean)]]
    for component in found.component.values:
        for kind in found.kind.values:
            at = found.sel(component=component, kind=kind)
            cells = [*(at.probability.sel(target=name) for name in (NOISE, OUTPUT)), at.context_share]
            rows.append([f"last {component}", str(kind), *(mean_with_range(cell, ".3f") for cell in cells)])
    return rows
