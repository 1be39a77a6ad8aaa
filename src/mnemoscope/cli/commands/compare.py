"""`mnemoscope compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.analysis import xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import JobOptions, RegisteredNames, ResultOptions
from mnemoscope.cli.sides import (
    Side,
    check_pair,
    choose_pair,
    comparison_notes,
    describe_side,
    distinct_names,
    file_name,
    other_differences,
    pair_name,
    read_side,
)
from mnemoscope.core.errors import InputError, in_range

if TYPE_CHECKING:
    from mnemoscope.report.comparison import ComparisonContent, SequenceComparison


@dataclass(frozen=True, kw_only=True)
class Compare(JobOptions, ResultOptions):
    """Two runs, checkpoints or configurations side by side: specification, skills, predictions, attention, ablation.

    Each of the two is a run or a directory with the seeds of one configuration; `RUN@STEP` is a checkpoint. Both are
    asked sequences of the task of the first one.
    """

    first: Positional[Annotated[str, RegisteredNames("runs")]]
    """Run directory, directory with seeds of one configuration, or a word such as `zoo:<configuration>`; `@STEP` after
    it takes the checkpoint of that step."""
    second: Positional[Annotated[str, RegisteredNames("runs")]]
    """The same; differences are the second minus the first."""
    split: Literal["train", "test"] = "test"
    """Sequences of the training set, or unseen ones."""
    step: int | None = None
    """Training step of the checkpoints, where no `@STEP` says otherwise; none: the last."""
    n: int = 512
    """Sequences of each subgroup; of those for ablation one half chooses the roles, the other is measured."""
    kinds: tuple[Literal["zero", "mean", "resample"], ...] = ("mean",)
    """What stands in for a part that is removed."""
    sequence: str | None = None
    """One that predictions and attention are shown on, as the task reads it; none: an unseen one."""
    out: Path = Path("results")
    """Arrays, tables and a page go to OUT/<first configuration>/compare/<first>-with-<second>."""


@dataclass(frozen=True, kw_only=True)
class ModelAndTask:
    """A model, and the task that its questions come from."""

    run: ms.Run
    step: int | None
    task: ms.Task


def run(options: Compare) -> None:
    """Measure both, print the tables, write arrays, tables and the page."""
    from mnemoscope.cli.analysis import write_results
    from mnemoscope.report.comparison import comparison_page

    in_range("--n", options.n, 2, float("inf"))
    if not options.kinds:
        raise InputError("--kinds must name at least one of zero, mean and resample")
    first, second = (read_side(word, options.step) for word in (options.first, options.second))
    check_pair(first, second)
    results, shown = compare(first, second, options)
    place = options.out / first.runs[0].label / "compare" / f"{file_name(first)}-with-{file_name(second)}"
    page = comparison_page(shown)
    write_results("compare", shown.title, results, shown.tables, page, place, finding=shown.finding, options=options)


# ---- what is measured


def measure(asked: ModelAndTask, options: Compare) -> dict[str, xr.Dataset]:
    """Skills of one model, those it has learned, and what they lose without each part where parts can be removed."""
    seed, split = asked.run.spec.seed, options.split
    task, model = asked.task.for_seed(seed), asked.run.hooked(asked.step)
    batch = task.monitor(options.n, split=split, generator=ms.generator(seed, "comparison", split))
    found = {"skills": ms.analyses.skill_scores(model, task, batch), "gate": ms.analyses.gate(model, task, batch)}
    if _removable(task, batch):
        removed = ms.analyses.ablate_by_role(model, task, kinds=options.kinds, n=options.n, split=split, seed=seed)
        found["ablation"] = _name_first_head(removed)
    return found


def _name_first_head(ablation: xr.Dataset) -> xr.Dataset:
    """A head that is alone (`the head`) under the name of the first of several, so that it stands beside that one."""
    first = f"{ablation.skill.values[0]} head"
    roles = [first if role == "the head" else role for role in ablation.role.values.tolist()]
    return ablation.assign_coords(role=roles)


def _removable(task: ms.Task, batch: ms.Batch) -> bool:
    """True if means over other sequences can be taken and roles be named: prompts are of one length and test skills."""
    return batch.has_vectors or (bool(task.skills(batch)) and not batch.ragged)


def compare(first: Side, second: Side, options: Compare) -> tuple[dict[str, Any], ComparisonContent]:
    """Results by name, and their tables, figures and notes."""
    from mnemoscope.cli.output import console
    from mnemoscope.report import comparison
    from mnemoscope.report.ablation import ablation_quantity, damage
    from mnemoscope.run.executor import analyse_many

    names, sides = distinct_names(first, second), (first, second)
    asked = [ModelAndTask(run=run, step=side.step, task=first.task) for side in sides for run in side.runs]
    with console.status(f"measuring {len(asked)} models"):
        each = list(analyse_many(asked, partial(measure, options=options), jobs=options.jobs))
    n = len(first.runs)
    found = [ms.analyses.over_seeds(first.runs, each[:n]), ms.analyses.over_seeds(second.runs, each[n:])]
    scores, others = (result["skills"] for result in found)
    changes = _differences(scores, others)
    results: dict[str, Any] = {"skills": _tree([scores, others], changes)}
    table = figure = None
    if all("ablation" in result for result in found):
        ablations = [result["ablation"] for result in found]
        one, other = (damage(ablation) for ablation in ablations)
        change = ms.analyses.paired_difference(one, other)
        heads_first = sorted(change.role.values.tolist(), key=lambda role: role.endswith("MLP"))
        change = change.sel(role=heads_first)
        results["ablation"] = _tree(ablations, change.to_dataset(name="lost"))
        what = ablation_quantity(ablations[0]).change
        table = comparison.ablation_table(one, other, change, names, what=what)
        figure = comparison.ablation_figure(one, other, change, names, what=what)
    pair = choose_pair(first, second)
    sequence, attention = _one_sequence(pair, sides, found, options)
    results["attention"] = attention
    places = _place_tables(pair, sides, names, options, results)
    sequences = f"{options.n} {'unseen ' if options.split == 'test' else 'training '}sequences of each subgroup"
    shown = comparison.ComparisonContent(
        title=f"{first.name} and {second.name}",
        lead=f"The first: {describe_side(first)}. The second: {describe_side(second)}.",
        finding=comparison.describe_comparison(changes, [result["gate"] for result in found], names),
        notes=comparison_notes(first, second, pair, ablated=table is not None),
        names=names,
        specification=comparison.specification_table(
            first.runs[0].spec, second.runs[0].spec, names, other_differences(first, second)
        ),
        skills=comparison.skill_table(scores, others, changes, names, sequences=sequences),
        skill_figure=comparison.skill_figure(scores, others, names),
        places=places,
        sequence=sequence,
        ablation=table,
        ablation_figure=figure,
    )
    return results, shown


def _differences(one: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    changes = {name: ms.analyses.paired_difference(one[name], other[name]) for name in one.data_vars}
    return xr.Dataset(changes, attrs=next(iter(changes.values())).attrs)


def _tree(sides: Sequence[xr.Dataset], change: xr.Dataset) -> xr.DataTree:
    return ms.analyses.side_by_side({"first": sides[0], "second": sides[1], "difference": change})


def _one_sequence(
    pair: tuple[ms.Run, ms.Run], sides: tuple[Side, Side], found: Sequence[Mapping[str, xr.Dataset]], options: Compare
) -> tuple[SequenceComparison, xr.DataTree]:
    """Attention, and predictions of tokens, of one seed each on one sequence of the first one's task."""
    from mnemoscope.report.comparison import SequenceComparison
    from mnemoscope.report.guesses import show_line_breaks

    task = sides[0].task.for_seed(pair[0].spec.seed)
    entry = ms.report.find_report(task)
    batch = entry.example(task) if options.sequence is None else entry.parse(task, options.sequence)
    models = [run.hooked(side.step) for run, side in zip(pair, sides, strict=True)]
    patterns = [entry.patterns(model, task, batch).isel(example=0) for model in models]
    roles = []
    for run, result in zip(pair, found, strict=True):
        of_run = result["ablation"].sel(seed=run.spec.seed) if "ablation" in result else None
        named = {} if of_run is None else ms.analyses.roles_of(of_run)
        roles.append({head: role for head, role in named.items() if "H" in head} or _numbered_roles(run))
    predicted = [] if batch.has_vectors else [entry.predict(model, task, batch) for model in models]
    what = "An unseen sequence" if options.sequence is None else f"The sequence {show_line_breaks(options.sequence)}"
    shown = SequenceComparison(
        title=f"{what}, {pair_name(pair)}",
        patterns=patterns,
        roles=roles,
        predictions=[entry.prediction_figure(each) for each in predicted],
        caption=entry.prediction_caption,
    )
    return shown, ms.analyses.side_by_side(dict(zip(("first", "second"), patterns, strict=True)))


def _numbered_roles(run: ms.Run) -> dict[str, str]:
    model = run.spec.model
    return {name: name for layer in range(model.n_layers) for name in (f"L{layer}H{h}" for h in range(model.n_heads))}


def _place_tables(
    pair: tuple[ms.Run, ms.Run],
    sides: tuple[Side, Side],
    names: tuple[str, str],
    options: Compare,
    results: dict[str, Any],
) -> list[ms.report.Table]:
    """The places at which the predictions of one seed each differ on the same sequences; none of vectors."""
    from mnemoscope.report.comparison import agreement_table, places_table

    seed = pair[0].spec.seed
    task = sides[0].task.for_seed(seed)
    generator = ms.generator(seed, "comparison", options.split)
    batch = task.monitor(options.n, split=options.split, generator=generator)
    if batch.has_vectors:
        return []
    one, other = (run.hooked(side.step) for run, side in zip(pair, sides, strict=True))
    found = ms.analyses.compare_predictions(one, other, task, batch)
    results["predictions"] = found
    title = pair_name(pair)
    return [agreement_table(found, names, title), places_table(found, task, names, title)]


COMMANDS.add("compare", Command(options=Compare, run=run, section="understand a trained model"))
