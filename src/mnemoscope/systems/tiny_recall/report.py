"""The report on runs of permutation lookup."""

from collections.abc import Mapping
from importlib.resources import files

import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, InputError, Run, TaskReport, generator
from mnemoscope.analyses import (
    ablate_by_role,
    by_role,
    evaluate_splits,
    every_sequence,
    named_patterns,
    roles_of,
    with_roles,
)
from mnemoscope.report import Results, Table, bar, plain_report
from mnemoscope.systems.tiny_recall.analyses.attention_shares import attention_shares
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict, predict
from mnemoscope.systems.tiny_recall.analyses.published import N_SAMPLES
from mnemoscope.systems.tiny_recall.answers import exact, marks
from mnemoscope.systems.tiny_recall.figures import PREDICTION_CAPTION, prediction
from mnemoscope.systems.tiny_recall.report_sections import opening, page
from mnemoscope.systems.tiny_recall.tables import (
    CONFLICT_HEADER,
    EVALUATION_HEADER,
    LEARNED_HEADER,
    PUBLISHED_HEADER,
    conflict_rows,
    evaluation_rows,
    learned_rows,
    published_rows,
    reference_header,
    reference_rows,
)
from mnemoscope.systems.tiny_recall.tasks import MAX_ENUMERATED, PermutationLookup, lookup_task

# ---- what is taken of a run


def examine(model: HookedModel, task: PermutationLookup, *, seed: int) -> dict[str, xr.Dataset]:
    """All analyses of one model; prompts come from the seed's streams, and V must be small enough to enumerate.

    `evaluation` is enumerated, `sampled` has the published number of samples; `ablation` and `attention` are by role;
    `examples` holds patterns on one sequence of each subgroup.
    """
    if task.n_values > MAX_ENUMERATED:
        raise InputError(f"this needs task.n_values <= {MAX_ENUMERATED}; got {task.n_values}; evaluate samples instead")
    ablation = ablate_by_role(model, task, seed=seed)
    named = roles_of(ablation)
    batch = task.monitor(512, split="test", generator=generator(seed, "attention"))
    return {
        "evaluation": evaluate_splits(model, task),
        "sampled": evaluate_splits(model, task, n_samples=N_SAMPLES, seed=seed),
        "conflict": conflict(model, task),
        "ablation": ablation,
        "attention": by_role(attention_shares(model, task, batch), named),
        "examples": with_roles(named_patterns(model, batch.select(torch.tensor([0, 512]))), named),
    }


def analyse_run(run: Run) -> dict[str, xr.Dataset]:
    """`examine` of a run's last checkpoint, and its training curve as `metrics`."""
    return {**examine(run.hooked(), lookup_task(run.spec.task), seed=run.spec.seed), "metrics": run.metrics()}


def evaluate(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Everything that one run is evaluated on; all sequences are enumerated unless some are drawn."""
    model, task, seed = run.hooked(), lookup_task(run.spec.task), run.spec.seed
    results = {"evaluation": evaluate_splits(model, task, n_samples=n_samples, seed=seed)}
    if task.n_values <= MAX_ENUMERATED:
        results["conflict"] = conflict(model, task)
        sampled = evaluate_splits(model, task, n_samples=N_SAMPLES, seed=seed)
        results["sampled"] = sampled.assign_attrs(preset=run.spec.preset)
    return results


# ---- tables


def tables(results: Mapping[str, Results]) -> list[Table]:
    """The published figures beside ours, and what was learned."""
    found = []
    for label, result in results.items():
        if rows := published_rows(result, result["metrics"].attrs["preset"]):
            title = f"{label} beside the published figures"
            found.append(Table(name=f"{label}-published", title=title, header=PUBLISHED_HEADER, rows=rows))
    title = "What was learned: mean [range] over seeds, unseen mappings"
    return [*found, Table(name="learned", title=title, header=LEARNED_HEADER, rows=learned_rows(results))]


def evaluation_tables(results: Results) -> list[Table]:
    """Every table that the results of one configuration allow."""
    evaluation = results["evaluation"]
    title = f"mean [range] over seeds, {evaluation.attrs['sequences']}"
    found = [Table(name="table", title=title, header=EVALUATION_HEADER, rows=evaluation_rows(evaluation))]
    title, header = "KL divergence (nats) from every exact predictor", reference_header(evaluation)
    found.append(Table(name="references", title=title, header=header, rows=reference_rows(evaluation)))
    if "conflict" in results:
        title, rows = "the conflict set, every sequence over unseen mappings", conflict_rows(results["conflict"])
        found.append(Table(name="conflict-set", title=title, header=CONFLICT_HEADER, rows=rows))
        if rows := published_rows(results, results["sampled"].attrs["preset"]):
            title = f"beside the published figures, {N_SAMPLES} samples"
            found.append(Table(name="published", title=title, header=PUBLISHED_HEADER, rows=rows))
    return found


# ---- one sequence


def prediction_tables(result: xr.Dataset) -> list[Table]:
    """The distribution at every slot beside the Bayes reference, as numbers and bars."""
    return [_slot(result.sel(slot=slot)) for slot in result.slot.values]


def _slot(at: xr.Dataset) -> Table:
    used = [int(v) for v in at.value.values if bool(at.used.sel(value=v))]
    rows = []
    for value in at.value.values:
        cell = at.sel(value=value)
        shares = [
            text for share in (float(cell.probability), float(cell.bayes)) for text in (f"{share:.4f}", bar(share))
        ]
        rows.append([str(value), *shares, ", ".join(marks(at, int(value)))])
    x = f"x = {int(at.x)}" + (f", a repeat of slot {int(at.repeats)}" if at.repeats else "")
    title = f"slot {int(at.slot)}: {x}; used y: {', '.join(map(str, used)) or 'none'}; exact: {exact(at)}"
    return Table(
        name=f"slot-{int(at.slot)}", title=title, header=("y", "model", "", "Bayes", "", ""), rows=rows, n_text=6
    )


def example(task: PermutationLookup) -> Batch:
    """An unseen sequence, with a repeat if the task has any."""
    batch = every_sequence(task)
    rows = (batch.latents["is_repeat"] == (task.repeat_ratio > 0)).nonzero()[:, 0]
    return batch.select(rows[len(rows) // 2, None])


def explorer() -> str:
    """The script with which the live explorer computes the task."""
    return (files("mnemoscope.systems.tiny_recall") / "explorer.js").read_text()


REPORTS.add(
    PermutationLookup.name,
    TaskReport(
        title="Permutation lookup: elimination and recall",
        analyse=analyse_run,
        page=page,
        tables=tables,
        evaluate=evaluate,
        evaluation_tables=evaluation_tables,
        parse=PermutationLookup.parse,
        predict=predict,
        prediction_tables=prediction_tables,
        prediction_figure=prediction,
        prediction_caption=PREDICTION_CAPTION,
        patterns=plain_report.patterns,
        example=example,
        opening=opening,
        explorer=explorer,
    ),
)
