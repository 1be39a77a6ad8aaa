"""`mnemoscope shapley`."""

from functools import partial

import xarray as xr

from mnemoscope.analyses.ablation.head_roles import choose_roles, role_prompts
from mnemoscope.analyses.roles import by_role
from mnemoscope.analyses.shapley import agreement, shapley
from mnemoscope.analyses.shapley.values import MIN_SAMPLES
from mnemoscope.cli.analysis import Results, Shown, Table, each_configuration, publish
from mnemoscope.cli.analysis_options import Shapley
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.models.run import Run
from mnemoscope.viz.ablation import outcome_rows
from mnemoscope.viz.shapley import (
    AGREEMENT_HEADER,
    MOST,
    OUTCOME_HEADER,
    OUTCOMES,
    agreement_rows,
    interaction_figure,
    interaction_header,
    interaction_rows,
    value_figure,
    value_header,
    value_rows,
)

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


def run(options: Shapley) -> None:
    """Print values, interactions and their agreement with single removals; write arrays, tables and figures."""
    in_range("--n", options.n, 2, float("inf"))
    if len(set(options.kinds)) < len(options.kinds):
        raise InputError(f"--kinds must name each kind once; got {' '.join(options.kinds)}")
    if options.samples is not None:
        in_range("--samples", options.samples, MIN_SAMPLES, float("inf"))
    analyse = partial(shapley_run, options=options)
    for label, runs, results in each_configuration(options.runs, analyse, jobs=options.jobs):
        publish("shapley", label, runs, results, _shown(results), options.out)


def shapley_run(run: Run, options: Shapley) -> dict[str, xr.Dataset]:
    """Values and interactions of one run, heads by role, and the agreement where there are two skills."""
    task, seed, model = run.spec.task, run.spec.seed, run.model(options.step)
    selection, test, reference = role_prompts(task, n=options.n, split=options.split, seed=seed)
    named = choose_roles(model, selection, skills=task.skills(selection), reference=reference)
    values = shapley(
        model,
        test,
        skills=task.skills(test),
        reference=reference,
        kinds=options.kinds,
        within=options.within,
        n_samples=options.samples,
        seed=seed,
    )
    values = by_role(values, named)
    return {"shapley": values} | ({"agreement": agreement(values)} if values.sizes["skill"] > 1 else {})


def _shown(results: Results) -> Shown:
    values, tables, figures, notes = results["shapley"], [], [], NOTES
    dots, mean = ("; dots are seeds, bars their mean", ", mean over seeds") if values.sizes["seed"] > 1 else ("", "")
    for metric in (str(name) for name in values.metric.values):
        tables += _value_tables(values, metric)
        caption = f"{metric}: value of a part, and what is lost without it alone{dots}."
        figures.append((caption, value_figure(values, metric)))
        figures.append((f"{metric}: interactions of parts{mean}.", interaction_figure(values, metric)))
    if "agreement" in results:
        found, notes = results["agreement"], (*NOTES, COMPARED)
        title = f"removal and value, as shares of what all parts carry in accuracy, margin {found.attrs['margin']:g}"
        rows = agreement_rows(found)
        tables.append(Table(name="agreement", title=title, header=AGREEMENT_HEADER, rows=rows, n_text=3))
        rows, title = outcome_rows(found, OUTCOMES), "dissociation of skills by removal and by value"
        tables.append(Table(name="dissociation", title=title, header=OUTCOME_HEADER, rows=rows, n_text=4))
    return Shown(tables=tables, figures=figures, notes=notes)


def _value_tables(values: xr.Dataset, metric: str) -> list[Table]:
    one_seed = values.sizes["seed"] == 1
    how = values.attrs["method"] + (f"; in brackets the interval, {values.attrs['interval']}" if one_seed else "")
    most = f"the {MOST} largest " if values.sizes["role"] * (values.sizes["role"] - 1) // 2 > MOST else ""
    return [
        Table(
            name=f"values-{metric}",
            title=f"{metric}: Shapley values, and what is lost without one part alone; {how}",
            header=value_header(values),
            rows=value_rows(values, metric),
            n_text=2,
        ),
        Table(
            name=f"interactions-{metric}",
            title=f"{metric}: {most}interactions of parts; {how}",
            header=interaction_header(values),
            rows=interaction_rows(values, metric),
            n_text=2,
        ),
    ]
