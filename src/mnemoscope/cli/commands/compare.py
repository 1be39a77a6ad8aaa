"""`mnemoscope compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.analysis import xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Jobs, WritesResults
from mnemoscope.core.errors import InputError, in_range

if TYPE_CHECKING:
    from mnemoscope.viz.comparison import Compared, OneSequence


@dataclass(frozen=True, kw_only=True)
class Compare(Jobs, WritesResults):
    """Two runs, checkpoints or configurations side by side: specification, skills, predictions, attention, ablation.

    Each of the two is a run or a directory with the seeds of one configuration; `RUN@STEP` is a checkpoint. Both are
    asked sequences of the task of the first one.
    """

    first: Positional[str]
    """Run directory, directory with seeds of one configuration, or a word such as `zoo:<configuration>`; `@STEP` after
    it takes the checkpoint of that step."""
    second: Positional[str]
    """The same; differences are the second minus the first."""
    split: Literal["train", "test"] = "test"
    """Mappings that the sequences show."""
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
class Side:
    """One of the two."""

    word: str
    runs: Sequence[ms.Run]
    step: int | None

    @property
    def parts(self) -> list[str]:
        """Configuration, seed of a single run, step of a checkpoint."""
        seed = f"seed {self.runs[0].spec.seed}" if len(self.runs) == 1 else ""
        return [self.runs[0].label, seed, "" if self.step is None else f"step {self.step}"]

    @property
    def name(self) -> str:
        """All of these."""
        return ", ".join(filter(None, self.parts))

    @property
    def task(self) -> ms.Task:
        """Without what the seed sets."""
        return self.runs[0].spec.configuration[0]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A model, and the task that its questions come from."""

    run: ms.Run
    step: int | None
    task: ms.Task


def run(options: Compare) -> None:
    """Measure both, print the tables, write arrays, tables and the page."""
    from mnemoscope.cli.analysis import write_results
    from mnemoscope.viz.comparison import comparison_page

    in_range("--n", options.n, 2, float("inf"))
    if not options.kinds:
        raise InputError("--kinds must name at least one of zero, mean and resample")
    first, second = (_side(word, options.step) for word in (options.first, options.second))
    _check_pair(first, second)
    results, shown = compare(first, second, options)
    place = options.out / first.runs[0].label / "compare" / f"{_file_name(first)}-with-{_file_name(second)}"
    write_results("compare", shown.title, results, shown.tables, comparison_page(shown), place, options=options)


# ---- which two


def _side(word: str, step: int | None) -> Side:
    """What a word names.

    Raises:
        InputError: No runs, runs of several configurations, or no such checkpoint.
    """
    path, at, digits = word.rpartition("@")
    if at and digits.isdecimal() and not Path(word).exists():
        step = int(digits)
    else:
        path = word
    runs = ms.find_runs(Path(path))
    labels = list(ms.models.by_label(runs))
    if len(labels) > 1:
        some = ", ".join(labels[:3]) + ", …" * (len(labels) > 3)
        raise InputError(f"{path} holds {len(labels)} configurations, {some}; name the directory of one")
    for each in runs:
        if step is not None and step not in each.steps:
            raise InputError(f"{each.path} has no checkpoint of step {step}; it has {', '.join(map(str, each.steps))}")
    return Side(word=word, runs=runs, step=step)


def _check_pair(first: Side, second: Side) -> None:
    """Refuse two that are the same, or that cannot be asked the same.

    Raises:
        InputError: They are.
    """
    from mnemoscope.core.protocols import VectorTask
    from mnemoscope.viz.guesses import symbols_of

    models = [{(r.path.resolve(), r.steps[-1] if s.step is None else s.step) for r in s.runs} for s in (first, second)]
    if models[0] == models[1]:
        raise InputError(f"{first.word} and {second.word} are the same; name two runs, checkpoints or configurations")
    ours, theirs = first.task, second.task
    if ours.name != theirs.name:
        raise InputError(f"compare asks both the same, and their tasks are {ours.name} and {theirs.name}")
    if isinstance(ours, VectorTask) and isinstance(theirs, VectorTask):
        sizes = [(task.d_vocab, task.d_output) for task in (ours, theirs)]
        if sizes[0] != sizes[1]:
            raise InputError(f"compare asks both the same, and their vectors have widths {sizes[0]} and {sizes[1]}")
    elif ours.d_vocab != theirs.d_vocab:
        raise InputError(f"compare asks both the same, and they have {ours.d_vocab} and {theirs.d_vocab} tokens")
    elif symbols_of(ours) != symbols_of(theirs):
        raise InputError("compare asks both the same, and their tokens stand for different symbols")
    if ours.n_ctx > theirs.n_ctx:
        raise InputError(
            f"sequences of the first have {ours.n_ctx} positions and the second reads {theirs.n_ctx}; name it first"
        )


def _file_name(side: Side) -> str:
    return "-".join(part.replace(" ", "-") for part in side.parts if part)


def _names(first: Side, second: Side) -> tuple[str, str]:
    """What tells the two apart."""
    whole = ("", "every seed", "last step")
    for ours, theirs, of_all in zip(first.parts, second.parts, whole, strict=True):
        if ours != theirs:
            return ours or of_all, theirs or of_all
    return first.word, second.word


# ---- what is measured


def measure(asked: Asked, options: Compare) -> dict[str, xr.Dataset]:
    """Skills of one model, and what they lose without each part where parts can be removed."""
    seed, split = asked.run.spec.seed, options.split
    task, model = asked.task.for_seed(seed), asked.run.model(asked.step)
    batch = task.monitor(options.n, split=split, generator=ms.generator(seed, "comparison", split))
    found = {"skills": ms.analyses.skill_scores(model, task, batch)}
    if _removable(task, batch):
        removed = ms.analyses.ablate_by_role(model, task, kinds=options.kinds, n=options.n, split=split, seed=seed)
        found["ablation"] = _as_of_several(removed)
    return found


def _as_of_several(ablation: xr.Dataset) -> xr.Dataset:
    """A head that is alone (`the head`) called as the first of several would be, so that it stands beside that one."""
    first = f"{ablation.skill.values[0]} head"
    roles = [first if role == "the head" else role for role in ablation.role.values.tolist()]
    return ablation.assign_coords(role=roles)


def _removable(task: ms.Task, batch: ms.Batch) -> bool:
    """Whether means over other sequences can be taken and roles be named: prompts are of one length and test skills."""
    return batch.has_vectors or (bool(task.skills(batch)) and not batch.ragged)


def compare(first: Side, second: Side, options: Compare) -> tuple[dict[str, Any], Compared]:
    """Results by name, and what is shown of them."""
    from mnemoscope.cli.output import console
    from mnemoscope.sweeps.local import analyse_many
    from mnemoscope.viz import comparison as viz
    from mnemoscope.viz.ablation import damage

    names, sides = _names(first, second), (first, second)
    asked = [Asked(run=run, step=side.step, task=first.task) for side in sides for run in side.runs]
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
        change = ms.analyses.difference(one, other)
        heads_first = sorted(change.role.values.tolist(), key=lambda role: role.endswith("MLP"))
        change = change.sel(role=heads_first)
        results["ablation"] = _tree(ablations, change.to_dataset(name="lost"))
        what = viz.damage_title(ablations[0])
        table = viz.ablation_table(one, other, change, names, what=what)
        figure = viz.ablation_figure(one, other, change, names, what=what)
    pair = _pair(first, second)
    sequence, attention = _one_sequence(pair, sides, found, options)
    results["attention"] = attention
    places = _places(pair, sides, names, options, results)
    sequences = f"{options.n} {'unseen ' if options.split == 'test' else 'training '}sequences of each subgroup"
    shown = viz.Compared(
        title=f"{first.name} and {second.name}",
        lead=f"The first: {_counted(first)}. The second: {_counted(second)}.",
        notes=_notes(first, second, pair, ablated=table is not None),
        names=names,
        specification=viz.specification_table(first.runs[0].spec, second.runs[0].spec, names, _beside(first, second)),
        skills=viz.skill_table(scores, others, changes, names, sequences=sequences),
        skill_figure=viz.skill_figure(scores, others, names),
        places=places,
        sequence=sequence,
        ablation=table,
        ablation_figure=figure,
    )
    return results, shown


def _differences(one: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    changes = {name: ms.analyses.difference(one[name], other[name]) for name in one.data_vars}
    return xr.Dataset(changes, attrs=next(iter(changes.values())).attrs)


def _tree(sides: Sequence[xr.Dataset], change: xr.Dataset) -> xr.DataTree:
    return ms.analyses.side_by_side({"first": sides[0], "second": sides[1], "difference": change})


def _pair(first: Side, second: Side) -> tuple[ms.Run, ms.Run]:
    """The first seed that both have; else the first of each."""
    others = {run.spec.seed: run for run in second.runs}
    shared = (run for run in first.runs if run.spec.seed in others)
    one = next(shared, first.runs[0])
    return one, others.get(one.spec.seed, second.runs[0])


def _pair_name(pair: tuple[ms.Run, ms.Run]) -> str:
    one, other = (run.spec.seed for run in pair)
    return f"seed {one}" if one == other else f"seeds {one} and {other}"


def _one_sequence(
    pair: tuple[ms.Run, ms.Run], sides: tuple[Side, Side], found: Sequence[Mapping[str, xr.Dataset]], options: Compare
) -> tuple[OneSequence, xr.DataTree]:
    """Attention, and predictions of tokens, of one seed each on one sequence of the first one's task."""
    from mnemoscope.viz.comparison import OneSequence
    from mnemoscope.viz.guesses import on_one_line

    task = sides[0].task.for_seed(pair[0].spec.seed)
    entry = ms.viz.report_of(task)
    batch = entry.example(task) if options.sequence is None else entry.parse(task, options.sequence)
    models = [run.model(side.step) for run, side in zip(pair, sides, strict=True)]
    patterns = [entry.patterns(model, task, batch).isel(example=0) for model in models]
    roles = []
    for run, result in zip(pair, found, strict=True):
        of_run = result["ablation"].sel(seed=run.spec.seed) if "ablation" in result else None
        named = {} if of_run is None else ms.analyses.named_in(of_run)
        roles.append({head: role for head, role in named.items() if "H" in head} or _numbered(run))
    predicted = [] if batch.has_vectors else [entry.predict(model, task, batch) for model in models]
    what = "An unseen sequence" if options.sequence is None else f"The sequence {on_one_line(options.sequence)}"
    shown = OneSequence(
        title=f"{what}, {_pair_name(pair)}",
        patterns=patterns,
        roles=roles,
        predictions=[entry.prediction_figure(each) for each in predicted],
        caption=entry.prediction_caption,
    )
    return shown, ms.analyses.side_by_side(dict(zip(("first", "second"), patterns, strict=True)))


def _numbered(run: ms.Run) -> dict[str, str]:
    model = run.spec.model
    return {name: name for layer in range(model.n_layers) for name in (f"L{layer}H{h}" for h in range(model.n_heads))}


def _places(
    pair: tuple[ms.Run, ms.Run],
    sides: tuple[Side, Side],
    names: tuple[str, str],
    options: Compare,
    results: dict[str, Any],
) -> list[ms.viz.Table]:
    """Where the predictions of one seed each differ on the same sequences; none of vectors."""
    from mnemoscope.viz.comparison import agreement_table, places_table

    seed = pair[0].spec.seed
    task = sides[0].task.for_seed(seed)
    generator = ms.generator(seed, "comparison", options.split)
    batch = task.monitor(options.n, split=options.split, generator=generator)
    if batch.has_vectors:
        return []
    one, other = (run.model(side.step) for run, side in zip(pair, sides, strict=True))
    found = ms.analyses.compare_predictions(one, other, task, batch)
    results["predictions"] = found
    title = _pair_name(pair)
    return [agreement_table(found, names, title), places_table(found, task, names, title)]


# ---- words


def _beside(first: Side, second: Side) -> dict[str, tuple[Any, Any]]:
    """What is no field of task, model or recipe."""
    from mnemoscope.viz.tables import ranges

    def steps(side: Side) -> str:
        return ranges({run.steps[-1] if side.step is None else side.step for run in side.runs})

    return {
        "preset": (first.runs[0].spec.preset, second.runs[0].spec.preset),
        "seed": (ranges(run.spec.seed for run in first.runs), ranges(run.spec.seed for run in second.runs)),
        "step": (steps(first), steps(second)),
    }


def _counted(side: Side) -> str:
    from mnemoscope.viz.tables import counted

    return side.name if len(side.runs) == 1 else f"{side.name}: {counted(len(side.runs), 'seed')}"


def _notes(first: Side, second: Side, pair: tuple[ms.Run, ms.Run], *, ablated: bool) -> list[str]:
    """What has to be known to read the numbers."""
    from mnemoscope.core.differences import differences, in_words
    from mnemoscope.viz.tables import counted

    notes = []
    apart = differences(second.runs[0].spec, first.runs[0].spec)
    of_task = {name: theirs for name, (_, theirs) in apart.items() if name.startswith("task.")}
    if of_task:
        notes.append(
            f"Both are asked sequences of the first one's task ({in_words(of_task)}), whatever they learned on."
        )
    seeds = [run.spec.seed for run in pair]
    if first.task.for_seed(seeds[0]) != first.task.for_seed(seeds[1]):
        notes.append(
            "Skills and ablation: each seed is asked what its own split holds. Predictions and attention: sequences "
            f"are those of seed {seeds[0]}; seed {seeds[1]} may have been trained on them, or on other facts."
        )
    if unfinished := sum(not run.finished for side in (first, second) for run in side.runs):
        notes.append(f"{counted(unfinished, 'run')} of these {'is' if unfinished == 1 else 'are'} not finished.")
    if len(first.runs) == len(second.runs) == 1:
        notes.append("One seed each: what differs between them may differ as much between seeds of one configuration.")
    if not ablated:
        notes.append("Parts are not removed: the task names no skills, or its prompts are of several lengths.")
    return notes


COMMANDS.add("compare", Command(options=Compare, run=run, section="train and look"))
