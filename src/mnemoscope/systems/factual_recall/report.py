"""The report on runs of factual recall: what was learned, and the stages in which it was."""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from mnemoscope import REPORTS, Run
from mnemoscope.systems.factual_recall.analyses.stages import facts_task, stages, trajectory
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from mnemoscope.viz import Page, Results, spread, trajectory_curves
from mnemoscope.viz import plain_report as plain

_PANELS = {
    "loss of relation and subject, nats": ("loss_relation", "loss_subject"),
    "divergence from p(a | r) and p(a | s), nats": ("kl_relation", "kl_subject"),
}
_WORDS = {
    "relation_known": "relation known",
    "hallucinates_from": "answers by the relation alone: from",
    "hallucinates_until": "answers by the relation alone: until",
    "fact_known": "fact known",
}


def examine(run: Run) -> dict[str, xr.Dataset]:
    """What any task of tokens has, and the trajectory with its stages, if it was tracked."""
    found, followed, task = plain.examine(run), run.trajectory(), facts_task(run.spec.task)
    if followed is None:
        return found
    onsets = stages(followed, n_relations=task.n_relations, n_answers=task.n_answers)
    return {**found, "trajectory": followed, "stages": onsets}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    plain.learned_section(page, results)
    stages_section(page, results)
    for section in (plain.ablation_section, plain.training_section, plain.view_section):
        section(page, results)


def stages_section(page: Page, results: Mapping[str, Results]) -> None:
    """What is known of a fact along training."""
    page.section("What is known of a fact, and when")
    page.text(
        "The loss of a fact is that of its relation plus that of its subject given the relation. Where the divergence "
        "from p(a | r) is small, a model answers by the relation alone: one of its answers, whatever the subject is."
    )
    for label, result in results.items():
        page.heading(label)
        if "stages" not in result:
            page.text("Not tracked yet: `mnemoscope track` takes these measures.")
            continue
        page.figure(trajectory_curves(result["trajectory"], _PANELS), "One line per seed.")
        rows = [[words, *_over_seeds(result["stages"][name])] for name, words in _WORDS.items()]
        near = result["stages"].attrs["near"]
        title = f"Steps, mean [range] over seeds; by the relation alone: at most {near} nats from p(a | r)"
        page.table(["stage", "seeds", "step"], rows, title)
        share = spread(result["stages"].share, ".2f")
        page.text(f"Until the fact is known the relation alone answers for this share of the steps: {share}.")


def _over_seeds(steps: xr.DataArray) -> list[str]:
    """In how many seeds a stage is reached, and when."""
    there = steps.dropna("seed")
    return [f"{there.size} of {steps.size}", spread(there, ".0f") if there.size else "never"]


REPORTS.add(
    FactualRecall.name,
    replace(plain.PLAIN, title="Factual recall", analyse=examine, page=page, trajectory=trajectory),
)
