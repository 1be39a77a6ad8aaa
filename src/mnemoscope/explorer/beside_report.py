"""The models that the explorer beside a report holds: the first seed of every configuration, with its results.

Roles and the costs of removals are those of the report, not measured again. The page stays near `WEIGHT_BYTES`: a
configuration whose checkpoints take more than an equal share has fewer, always with the last.
"""

from collections.abc import Mapping, Sequence

import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import reads_vectors
from mnemoscope.explorer.content import Taken
from mnemoscope.explorer.packing import checkpoint_bytes, page_configuration
from mnemoscope.models.run import Run
from mnemoscope.report.tables import Results
from mnemoscope.report.task_report import TaskReport, by_report

WEIGHT_BYTES = 24_000_000
"""Bound on all checkpoints together, unless the last ones alone take more."""


def first_seeds(
    runs: Sequence[Run], parts: Sequence[tuple[TaskReport, Mapping[str, Results]]]
) -> tuple[list[Taken], dict[str, InputError]]:
    """The models of tokens that the page takes, and for each other configuration the reason why it is left out."""
    results = {label: result for _, each in parts for label, result in each.items()}
    fitting: dict[str, tuple[Run, int]] = {}
    refused = {}
    for _, groups in by_report(runs):
        for label, (run, *_) in groups.items():
            model = run.hooked()
            if reads_vectors(model):
                continue
            try:
                page_configuration(model)
            except InputError as refusal:
                refused[label] = refusal
            else:
                fitting[label] = run, checkpoint_bytes(model)
    taken = [
        Taken(
            run=run,
            n_checkpoints=max(1, WEIGHT_BYTES // len(fitting) // n_bytes),
            removed=_removed(results[label], run.spec.seed),
        )
        for label, (run, n_bytes) in fitting.items()
    ]
    return taken, refused


def _removed(result: Results, seed: int) -> xr.Dataset | None:
    """The measurements without each part, by role; None: nothing that the page can use."""
    found = result.get("ablation")
    if found is None or "component" not in found.coords or "mean" not in found.get("kind", ()):
        return None
    return found.sel(seed=seed)
