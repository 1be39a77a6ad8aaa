"""The two sides that `compare` puts next to each other: their words, the questions they share, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mnemoscope as ms
from mnemoscope.core.errors import InputError


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
        """The task, without the fields that the seed sets."""
        return self.runs[0].spec.configuration[0]


def read_side(word: str, step: int | None) -> Side:
    """The side that a word names: runs of one configuration, at a checkpoint."""
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


def check_pair(first: Side, second: Side) -> None:
    """Refuse two sides that are the same, or that share no questions."""
    from mnemoscope.core.protocols import VectorTask
    from mnemoscope.report.guesses import output_symbols, token_symbols

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
    elif token_symbols(ours) != token_symbols(theirs) or output_symbols(ours) != output_symbols(theirs):
        raise InputError("compare asks both the same, and their tokens or classes stand for different symbols")
    if ours.n_ctx > theirs.n_ctx:
        raise InputError(
            f"sequences of the first have {ours.n_ctx} positions and the second reads {theirs.n_ctx}; name it first"
        )


def file_name(side: Side) -> str:
    """All of its parts as one word."""
    return "-".join(part.replace(" ", "-") for part in side.parts if part)


def distinct_names(first: Side, second: Side) -> tuple[str, str]:
    """Names that tell the two apart."""
    whole = ("", "every seed", "last step")
    for ours, theirs, of_all in zip(first.parts, second.parts, whole, strict=True):
        if ours != theirs:
            return ours or of_all, theirs or of_all
    return first.word, second.word


def choose_pair(first: Side, second: Side) -> tuple[ms.Run, ms.Run]:
    """The first seed that both have; else the first of each."""
    others = {run.spec.seed: run for run in second.runs}
    shared = (run for run in first.runs if run.spec.seed in others)
    one = next(shared, first.runs[0])
    return one, others.get(one.spec.seed, second.runs[0])


def pair_name(pair: tuple[ms.Run, ms.Run]) -> str:
    """The seeds of the two."""
    one, other = (run.spec.seed for run in pair)
    return f"seed {one}" if one == other else f"seeds {one} and {other}"


def other_differences(first: Side, second: Side) -> dict[str, tuple[Any, Any]]:
    """Differences outside the fields of task, model and recipe."""
    from mnemoscope.report.tables import format_ranges

    def steps(side: Side) -> str:
        return format_ranges({run.steps[-1] if side.step is None else side.step for run in side.runs})

    return {
        "preset": (first.runs[0].spec.preset, second.runs[0].spec.preset),
        "seed": (
            format_ranges(run.spec.seed for run in first.runs),
            format_ranges(run.spec.seed for run in second.runs),
        ),
        "step": (steps(first), steps(second)),
    }


def describe_side(side: Side) -> str:
    """Its name, with the number of seeds where there are several."""
    from mnemoscope.report.tables import pluralise

    return side.name if len(side.runs) == 1 else f"{side.name}: {pluralise(len(side.runs), 'seed')}"


def comparison_notes(first: Side, second: Side, pair: tuple[ms.Run, ms.Run], *, ablated: bool) -> list[str]:
    """Notes that a reader of the numbers needs."""
    from mnemoscope.core.presets import differing_fields, fields_text
    from mnemoscope.report.tables import pluralise

    notes = []
    apart = differing_fields(second.runs[0].spec, first.runs[0].spec)
    of_task = {name: theirs for name, (_, theirs) in apart.items() if name.startswith("task.")}
    if of_task:
        notes.append(
            f"Both are asked sequences of the first one's task ({fields_text(of_task)}), whatever they learned on."
        )
    seeds = [run.spec.seed for run in pair]
    if first.task.for_seed(seeds[0]) != first.task.for_seed(seeds[1]):
        notes.append(
            "Skills and ablation: each seed is asked what its own split holds. Predictions and attention: sequences "
            f"are those of seed {seeds[0]}; seed {seeds[1]} may have been trained on them, or on other facts."
        )
    if unfinished := sum(not run.finished for side in (first, second) for run in side.runs):
        notes.append(f"{pluralise(unfinished, 'run')} of these {'is' if unfinished == 1 else 'are'} not finished.")
    if len(first.runs) == len(second.runs) == 1 and pair[0].path.resolve() != pair[1].path.resolve():
        notes.append("One seed each: what differs between them may differ as much between seeds of one configuration.")
    if not ablated:
        notes.append("Parts are not removed: the task names no skills, or its prompts are of several lengths.")
    return notes
