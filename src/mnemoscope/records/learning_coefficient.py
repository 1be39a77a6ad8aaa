"""Local learning coefficient of every checkpoint, and its onset beside those of the skills.

The coefficient has its onset at the checkpoint from which it stays half-way up from its first to its largest value. Its
steepest rise is the checkpoint that it rises most to. A skill has its onset where its accuracy stays at one half, or
where the loss of a part of vectors stays half-way down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import pluralise
from mnemoscope.records.record import GATE, MeasuredRuns, Options, register_module, xr

NAME = "coefficient"
"""The event, among those of skills."""
FLAGS = ("negative", "sticking", "drifting")


@dataclass(frozen=True, kw_only=True)
class LearningCoefficient(Options):
    """The local learning coefficient along checkpoints, and whether it rises before the skills do."""

    split: Literal["train", "test"] = "train"
    """Sequences of the training set, or unseen ones."""
    step: int | None = None
    """Training step of the checkpoint; none: every checkpoint."""
    n: int = 256
    """Sequences that the loss is a mean over; they set the temperature too."""
    n_chains: int = 4
    """Chains of each checkpoint."""
    burn_in: int = 200
    """Steps of each chain that are left out."""
    draws: int = 300
    """Steps of each chain after that."""
    step_size: float | None = None
    """Largest step of the chains, in units of the inverse curvature; none: chosen in burn-in."""
    localisation: float = 100.0
    """Pull towards the weights of the checkpoint."""


LIMITS = (
    "Half the number of directions of the weights that the loss feels, near those of each checkpoint: draws of weights "
    "by Langevin chains, whose mean loss less that of the checkpoint is scaled by n / log n. Chains of one checkpoint "
    "differ in their noise only.",
    "It does not show what a model computes, and numbers of two temperatures, pulls or sets of sequences are not "
    "compared. Checkpoints early in training are no minimum of the loss, so the number may be negative there.",
    "An onset is known no better than between two checkpoints. An order that seeds share is no proof that the one is "
    "needed for the other.",
)


def check(options: LearningCoefficient) -> None:
    """Refuse settings that chains do not take."""
    _chains(options, seed=0)


def _chains(options: LearningCoefficient, *, seed: int) -> ms.analyses.LangevinChains:
    return ms.analyses.LangevinChains(
        n_chains=options.n_chains,
        burn_in=options.burn_in,
        draws=options.draws,
        step_size=options.step_size,
        localisation=options.localisation,
        seed=seed,
    )


def measure(run: ms.Run, options: LearningCoefficient) -> dict[str, xr.Dataset]:
    """Estimate the coefficient of the checkpoints of one run, and take the scores of skills there.

    Checkpoints that training keeps and that are not there are missing values.
    """
    seed, task = run.spec.seed, run.spec.task
    batch = task.sample(options.n, split=options.split, generator=ms.generator(seed, NAME, options.split))
    chains = _chains(options, seed=seed)
    steps = None if options.step is None else [options.step]

    def coefficient(model: ms.HookedModel) -> xr.Dataset:
        found = ms.analyses.learning_coefficient(model, task, batch, chains=chains)
        names = ["estimate", "spread", "start_loss", "acceptance", "effective_draws", "drift", *FLAGS]
        return found[names].mean("chain").astype(float)

    def skills(model: ms.HookedModel) -> xr.Dataset:
        return ms.analyses.skill_trajectory(model, task, seed=seed)

    results = {
        "learning_coefficient": ms.analyses.over_steps(run, coefficient, steps=steps),
        "skills": ms.analyses.over_steps(run, skills, steps=steps),
    }
    kept = sorted({*run.kept_steps, *run.steps}) if steps is None else steps
    return {name: found.reindex(step=kept) for name, found in results.items()}


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The last checkpoint, every checkpoint, onsets, and the order of the coefficient and each skill."""
    found = measured.results["learning_coefficient"]
    last = last_checkpoints(found)
    names = {"start_loss": "loss", "estimate": "coefficient", "spread": "spread over chains"}
    cells = {name: ms.report.mean_with_range(last[name], _FORMS[name]) for name in names}
    header, title = ("of the last checkpoint", "value"), "local learning coefficient"
    rows = [[words, cells[name]] for name, words in names.items()]
    shown = [ms.report.Table(name="last", title=title, header=header, rows=rows)]
    shown.append(checkpoint_table(found))
    events = onsets(measured.results)
    return shown if events is None else [*shown, onset_table(events), order_table(events)]


_FORMS = {"start_loss": ".4f", "estimate": ".2f", "spread": ".2f"}


def last_checkpoints(found: xr.Dataset) -> xr.Dataset:
    """The measures of the last checkpoint that was there, over seed."""
    each = [found.isel(seed=[i]).dropna("step", subset=["estimate"]) for i in range(found.sizes["seed"])]
    return xr.concat([one.isel(step=-1, drop=True) for one in each], "seed")


def checkpoint_table(found: xr.Dataset) -> ms.report.Table:
    """The coefficient of every checkpoint, its spread over chains, and the seeds with each flag."""
    rows = []
    for step in found.step.values.tolist():
        at = found.sel(step=step).dropna("seed", subset=["estimate"])
        if at.seed.size:
            flags = [f"{flag} {int(at[flag].sum())}/{at.seed.size}" for flag in FLAGS if at[flag].any()]
            cells = [ms.report.mean_with_range(at[name], form) for name, form in _FORMS.items()]
            rows.append([str(step), *cells, ", ".join(flags) or "none"])
    header = ("step", "loss", "coefficient", "spread over chains", "flags: seeds")
    return ms.report.Table(name="checkpoints", title="coefficient of every checkpoint", header=header, rows=rows)


Onsets = Mapping[str, Any]
"""Event to its onset over seed; NaN: never."""


def onsets(results: Mapping[str, Any]) -> Onsets | None:
    """Onset of the coefficient, its steepest rise and the onsets of skills, over seeds measured at every step.

    None if there is no such seed, or one checkpoint only.
    """
    estimate = results["learning_coefficient"].estimate
    whole = estimate.notnull().all("step")
    if estimate.step.size < 2 or not whole.any():
        return None
    estimate, skills = estimate[whole.values], results["skills"].isel(seed=whole.values)
    accuracies = [name for name in map(str, skills) if name.startswith("accuracy_")]
    measures = {name.removeprefix("accuracy_"): skills[name] for name in accuracies}
    if not accuracies:
        measures = {name.replace("_", " "): skills[name] for name in map(str, skills)}
    rises = estimate.max("step") > estimate.isel(step=0)
    coefficient = ms.analyses.half_way_step(estimate, direction="rise").where(rises)
    steepest = ms.analyses.steepest_step(estimate)
    known = {name: values for name, values in measures.items() if values.notnull().all()}
    return {
        NAME: coefficient,
        f"{NAME}, steepest": steepest,
        **{name: ms.analyses.first_step(values) for name, values in known.items()},
    }


def onset_table(events: Onsets) -> ms.report.Table:
    """The onset of every event, in steps."""
    rows = [
        [name, ms.report.mean_with_range(steps, ".0f"), f"{int(steps.notnull().sum())}/{steps.size}"]
        for name, steps in events.items()
    ]
    return ms.report.Table(name="onsets", title="onsets", header=("event", "onset, step", "in seeds"), rows=rows)


def order_table(events: Onsets) -> ms.report.Table:
    """The share of seeds in which one of the coefficient and a skill comes before the other."""
    order = ms.analyses.order_of_onsets(events)
    rows = []
    for event in (name for name in events if name.startswith(NAME)):
        for skill in (name for name in events if not name.startswith(NAME)):
            for first, second in ((event, skill), (skill, event)):
                rows.append([first, second, _share(order, first, second)])
    header = ("first", "second", "share of seeds [95 % interval]")
    return ms.report.Table(name="order", title="order of onsets", header=header, rows=rows, n_text=2)


def _share(order: xr.Dataset, first: str, second: str) -> ms.report.Number:
    at = order.sel(first=first, second=second)
    return ms.report.interval(float(at.share), float(at.low), float(at.high), ".2f", n=order.attrs["n"])


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The coefficient and the scores of skills along steps, one line per seed."""
    estimate = measured.results["learning_coefficient"].estimate
    skills = measured.results["skills"]
    accuracies = [str(name) for name in skills if str(name).startswith("accuracy_")]
    panels = {"local learning coefficient": [NAME], "accuracy" if accuracies else "squared error": accuracies}
    panels = panels if accuracies else {**panels, "squared error": [str(name) for name in skills]}
    figure = ms.report.trajectory_curves(skills.assign({NAME: estimate}), panels)
    figure.update_traces(mode="lines+markers", marker_size=4)
    figure.update_xaxes(type="log")
    caption = "Coefficient and skills of every checkpoint but the first, on a logarithmic axis; one line per seed."
    return [(caption, figure)]


def finding(measured: MeasuredRuns) -> str:
    """The last coefficient, and for every skill which of the two comes first, with the interval over seeds."""
    found = last_checkpoints(measured.results["learning_coefficient"])
    said = [f"The coefficient of the last checkpoint is {ms.report.mean_with_range(found.estimate, '.1f')}."]
    events = onsets(measured.results)
    gate = measured.results[GATE].learned
    learned = [name for name in gate.skill.values[gate.any("seed").values].tolist() if name in (events or {})]
    if events is None or not learned:
        return said[0]
    order = ms.analyses.order_of_onsets(events)
    n = pluralise(order.attrs["n"], "seed")
    for skill in learned:
        before, after = (_share(order, *pair) for pair in ((NAME, skill), (skill, NAME)))
        said.append(
            f"The coefficient is half-way up before the onset of {skill} in a share {before} of {n}, and after it in "
            f"{after}: {_first(order, skill)}."
        )
    return " ".join(said)


def _first(order: xr.Dataset, skill: str) -> str:
    """The one of the two that comes first in most seeds, if the interval says so."""
    if float(order.low.sel(first=NAME, second=skill)) > 0.5:
        return "the coefficient comes first"
    if float(order.low.sel(first=skill, second=NAME)) > 0.5:
        return f"{skill} comes first"
    return "neither comes first in most seeds, as far as these tell"


register_module(__name__, LearningCoefficient, vectors=True, source="Lau et al. 2023, arXiv 2308.12108")
