"""`mnemoscope shapley`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, xr
from mnemoscope.cli.options import AnalysisOptions
from mnemoscope.core.errors import InputError, in_range


@dataclass(frozen=True, kw_only=True)
class Shapley(AnalysisOptions):
    """What each head and MLP is worth for each skill when any of the others may be missing too; heads by role."""

    kinds: tuple[Literal["zero", "mean", "resample"], ...] = ("mean",)
    """What stands in for a part that is missing: zeros, means, activations of another sequence."""
    within: str | None = None
    """Latent of the task: means and resampled activations come from sequences of the same class."""
    samples: int | None = None
    """Sampled squares of orders, at least 8; none: every set of up to 12 parts, 16 squares of more."""
    n: int = 1024
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


NOTES = (
    "A part's Shapley value is what it adds to the parts that are there before it, on average over all orders in which "
    "they can come. Values add up to what is lost without all parts, so that parts that can stand in for each other "
    "share what removing one of them alone would not show. An interaction is what a part is worth where the other "
    "is there, less what it is worth where it is not: below 0 they stand in for each other, above 0 they work "
    "together only.",
    "This does not show what a part computes, nor that two parts are connected. Most sets of parts are far from what "
    "the model was trained as, and what stands in for the missing ones matters. Accuracy needs enough of everything, "
    "so that parts whose logits only add up interact in it; look at the log-probability too.",
    "Heads are named by what they are needed for, on one half of the prompts; all numbers are from the other half.",
)
COMPARED = (
    "By removal a part costs a skill if what is lost without it alone is above the margin, by value if its value is, "
    "both as shares of what all parts carry. Where they disagree, redundancy and synergy say that pairs make up at "
    "least half of the difference, and with which part. Neither reading is the right one: removal asks what the model "
    "as it is cannot do without, the value what a part adds to any set of the others."
)


def shapley_run(run: ms.Run, options: Shapley) -> dict[str, xr.Dataset]:
    """Values and interactions of one run, heads by role, and the agreement where there are two skills."""
    from mnemoscope.analyses.ablation.head_roles import role_prompts
    from mnemoscope.analyses.shapley.against_removal import removal_agreement

    task, seed, model = run.spec.task, run.spec.seed, run.hooked(options.step)
    selection, test, reference = role_prompts(task, n=options.n, split=options.split, seed=seed)
    named = ms.analyses.choose_roles(model, selection, skills=task.skills(selection), reference=reference)
    values = ms.shapley(
        model,
        test,
        skills=task.skills(test),
        reference=reference,
        kinds=options.kinds,
        within=options.within,
        n_samples=options.samples,
        seed=seed,
    )
    values = ms.analyses.by_role(values, named)
    return {"shapley": values} | ({"agreement": removal_agreement(values)} if values.sizes["skill"] > 1 else {})


def _shown(results: Results, options: Shapley, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import attributed
    from mnemoscope.viz.shapley import agreement_tables, interaction_figure, value_figure, value_tables

    values, tables, figures, notes = results["shapley"], [], [], NOTES
    dots, mean = ("; dots are seeds, bars their mean", ", mean over seeds") if values.sizes["seed"] > 1 else ("", "")
    for metric in (str(name) for name in values.metric.values):
        tables += value_tables(values, metric)
        caption = f"{metric}: value of a part, and what is lost without it alone{dots}."
        figures.append((caption, value_figure(values, metric)))
        figures.append((f"{metric}: interactions of parts{mean}.", interaction_figure(values, metric)))
    if "agreement" in results:
        tables, notes = [*tables, *agreement_tables(results["agreement"])], (*NOTES, COMPARED)
    return Shown(finding=attributed(values), tables=tables, figures=figures, notes=notes)


def _check(options: Shapley) -> None:
    from mnemoscope.analyses.shapley.values import MIN_SAMPLES

    if len(set(options.kinds)) < len(options.kinds):
        raise InputError(f"--kinds must name each kind once; got {' '.join(options.kinds)}")
    if options.samples is not None:
        in_range("--samples", options.samples, MIN_SAMPLES, float("inf"))


analysis_command("shapley", Shapley, measure=shapley_run, show=_shown, check=_check)
