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
from mnemoscope.report import (
    Opening,
    Page,
    Results,
    Table,
    ablation_by_role,
    ablation_header,
    ablation_rows,
    attention_view,
    bar,
    findings,
    plain_report,
)
from mnemoscope.systems.tiny_recall.analyses.attention import attention_shares
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict, exact, marks, predict
from mnemoscope.systems.tiny_recall.analyses.published import N_SAMPLES
from mnemoscope.systems.tiny_recall.figures import (
    CONFLICT_HEADER,
    EVALUATION_HEADER,
    LEARNED,
    LEARNED_HEADER,
    PREDICTION_CAPTION,
    PUBLISHED_HEADER,
    attention_by_role,
    conflict_rows,
    evaluation_rows,
    learned_rows,
    prediction,
    published_rows,
    reference_header,
    reference_rows,
    training_curves,
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
    return (files("mnemoscope.systems.tiny_recall") / "explorer.js").read_text(encoding="utf-8")


_FLOORS = {"bayes": "floor: all mappings", "bayes_train": "floor: training mappings"}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page, from what `analyse_run` returns along `seed`, by label (preset and recipe)."""
    for section in (_what_was_learned, _published, _references, _conflict, _curves, _ablations, _attention, _views):
        section(page, results)


def opening(result: Results) -> Opening:
    """The learning of both skills, the part that each needs, and the attention of a repeated x."""
    ablation = result["ablation"]
    figures = [
        ("Training: one line per seed.", training_curves(result["metrics"], floors(result))),
        ("Removing one component: dots are seeds, bars their mean.", ablation_by_role(ablation)),
        ("Where x looks if the last one is a repeat.", attention_by_role(result["attention"], "repeat")),
    ]
    return Opening(
        finding=f"{findings.describe_final_accuracy(result['metrics'])} {findings.describe_removal(ablation)}",
        figures=figures,
    )


def _what_was_learned(page: Page, results: Mapping[str, Results]) -> None:
    page.section("What was learned")
    page.text(
        "Accuracy of the last answer on unseen mappings: elimination on sequences whose last x is new, recall "
        f"on sequences whose last x stood there before. A skill counts as learned from {LEARNED:.0%} on. "
        "Losses are those of the configuration's own distribution, in nats per scored position; sequences are "
        "enumerated, so these numbers are exact."
    )
    page.table(LEARNED_HEADER, learned_rows(results))


def _published(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Beside the published figures")
    page.text(
        "5,000 samples on unseen mappings, as the source did; its one loss stands beside ours on training and on "
        "unseen mappings. Absolute errors are distances to the uniform posterior over the permutations consistent "
        "with the context, over the five values. The conflict set is the mean over every sequence that repeats "
        "slot 1; the source shows one sequence. Quick and published recipes are never pooled."
    )
    for label, result in results.items():
        if rows := published_rows(result, result["metrics"].attrs["preset"]):
            page.heading(label)
            page.table(PUBLISHED_HEADER, rows)


def _references(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Distance to the exact predictors")
    page.text(
        "KL divergence from every exact predictor to the model, in nats: 'bayes' is the uniform posterior over "
        "consistent permutations, 'bayes, train' the posterior of a predictor that knows the training mappings. "
        "Infinite where the model excludes what the predictor allows. A share after a number: the predictor is "
        "defined on that share of the sequences only, because elsewhere no training mapping is consistent; a dash: "
        "on none."
    )
    for label, result in results.items():
        page.heading(label)
        page.table(reference_header(result["evaluation"]), reference_rows(result["evaluation"]))


def _conflict(page: Page, results: Mapping[str, Results]) -> None:
    page.section("The conflict set")
    page.text(
        "Four pairs, then an earlier x again: recall answers with that x's y, elimination with the one value "
        "not used yet. Mean probability of either answer on every such sequence over unseen mappings, by the "
        "slot that is repeated."
    )
    for label, result in results.items():
        page.heading(label)
        page.table(CONFLICT_HEADER, conflict_rows(result["conflict"]))


def floors(result: Results) -> dict[str, float]:
    """The exact losses that the curves of a configuration are drawn with: floors of its own distribution."""
    own = result["evaluation"].floor.sel(subgroup="all", split="train").mean(["pos", "seed"])
    return {name: float(own.sel(reference=reference)) for reference, name in _FLOORS.items()}


def _curves(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Training")
    page.text(
        "Floors are exact: the loss of the best predictor that knows nothing of the split (all mappings), and "
        "of one that knows the training mappings. A loss on training mappings below the first can only come "
        "from the training split itself, and it is paid for on unseen mappings."
    )
    for label, result in results.items():
        page.heading(label)
        page.figure(training_curves(result["metrics"], floors(result)), "One line per seed.")


def _ablations(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Removing one component")
    page.text(
        "Heads are named by what they do, not by number: the elimination head is the one whose mean ablation costs "
        "most on elimination, chosen on one half of the prompts; all numbers are from the other half. This shows what "
        "a skill needs, with the rest of the model as it is; it does not show what the component computes."
    )
    for label, result in results.items():
        table = result["ablation"]
        page.heading(label)
        page.figure(ablation_by_role(table), "Dots are seeds, bars their mean; 'nothing' is the intact model.")
        caption = "Accuracy, mean [range] over seeds."
        page.table(ablation_header(table), ablation_rows(table), caption)


def _attention(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Where x looks")
    page.text(
        "Mean share of attention from the x of every slot, over unseen mappings and seeds, by role. Shares "
        "overlap: the y just before is one of the earlier y. 'Same x' is the earlier occurrence of the x that "
        "repeats. Patterns are correlational."
    )
    for label, result in results.items():
        for subgroup, words in (("fresh", "last x new"), ("repeat", "last x repeated")):
            page.heading(f"{label}: {words}")
            page.figure(attention_by_role(result["attention"], subgroup))


def _views(page: Page, results: Mapping[str, Results]) -> None:
    page.section("Single sequences")
    page.text("Select a head to see it in full size; rows are queries, columns keys.")
    for label, result in results.items():
        first = result["examples"].isel(seed=0)
        page.heading(f"{label}, seed {int(first.seed)}")
        for index, words in enumerate(("The last x is new", "The last x stood there before")):
            attention_view(page, first.isel(example=index), words)


REPORTS.add(
    PermutationLookup.name,
    TaskReport(
        title="Permutation lookup: elimination and recall",
        about="A sequence shows a permutation pair by pair, x1 y1 x2 y2 …, and every x asks for its y. The last y "
        "follows by elimination, as the one value not used yet, or by recall where the last x has stood before.",
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
