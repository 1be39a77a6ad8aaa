"""Sections of the report on runs of permutation lookup."""

from collections.abc import Mapping

from mnemoscope.report import (
    Opening,
    Page,
    Results,
    ablation_by_role,
    ablation_header,
    ablation_rows,
    attention_view,
    findings,
)
from mnemoscope.systems.tiny_recall.figures import attention_by_role, training_curves
from mnemoscope.systems.tiny_recall.tables import (
    CONFLICT_HEADER,
    LEARNED,
    LEARNED_HEADER,
    PUBLISHED_HEADER,
    conflict_rows,
    learned_rows,
    published_rows,
    reference_header,
    reference_rows,
)

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
    return Opening(finding=f"{findings.trained(result['metrics'])} {findings.removal(ablation)}", figures=figures)


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
