"""`mnemoscope evaluate`."""

from collections.abc import Iterator, Sequence
from functools import partial

import xarray as xr

from mnemoscope.analyses.conflict import conflict
from mnemoscope.analyses.evaluation import evaluate_splits
from mnemoscope.analyses.examine import lookup_task
from mnemoscope.analyses.published import N_SAMPLES
from mnemoscope.cli.analysis import each_configuration
from mnemoscope.cli.options import Evaluate
from mnemoscope.cli.output import show, write_arrays, write_table
from mnemoscope.core.errors import in_range
from mnemoscope.models.run import Run
from mnemoscope.tasks.permutation_lookup import MAX_ENUMERATED
from mnemoscope.viz.tables import (
    CONFLICT_HEADER,
    EVALUATION_HEADER,
    PUBLISHED_HEADER,
    Results,
    conflict_rows,
    evaluation_rows,
    published_rows,
    reference_header,
    reference_rows,
)


def run(options: Evaluate) -> None:
    """Print, for every configuration, the evaluation and the published figures beside it; write both if asked to."""
    if options.n_samples is not None:
        in_range("--n-samples", options.n_samples, 1, float("inf"))
    analyse = partial(evaluate_run, n_samples=options.n_samples)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        if options.out:
            write_arrays(options.out / label, results)
        for name, title, header, rows in _tables(results, runs):
            show(f"{label}, {len(runs)} seeds: {title}", header, rows)
            if options.out:
                write_table(options.out / label / f"{name}.csv", header, rows)


def _tables(results: Results, runs: Sequence[Run]) -> Iterator[tuple[str, str, Sequence[str], list[list[str]]]]:
    """File name, title, header and rows of every table that the results allow."""
    evaluation = results["evaluation"]
    title = f"mean [range] over seeds, {evaluation.attrs['sequences']}"
    yield "table", title, EVALUATION_HEADER, evaluation_rows(evaluation)
    title = "KL divergence (nats) from every exact predictor"
    yield "references", title, reference_header(evaluation), reference_rows(evaluation)
    if "conflict" in results:
        title = "the conflict set, every sequence over unseen mappings"
        yield "conflict-set", title, CONFLICT_HEADER, conflict_rows(results["conflict"])
        if rows := published_rows(results, runs[0].spec.preset):
            yield "published", f"beside the published figures, {N_SAMPLES} samples", PUBLISHED_HEADER, rows


def evaluate_run(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Everything that one run is evaluated on."""
    model, task, seed = run.model(), lookup_task(run.spec.task), run.spec.seed
    results = {"evaluation": evaluate_splits(model, task, n_samples=n_samples, seed=seed)}
    if task.n_values <= MAX_ENUMERATED:
        results["conflict"] = conflict(model, task)
        results["sampled"] = evaluate_splits(model, task, n_samples=N_SAMPLES, seed=seed)
    return results
