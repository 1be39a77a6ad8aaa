"""A task in words for a page: sentences about it, and one unseen sequence with its answer in the task's symbols."""

import inspect
from dataclasses import dataclass

from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task, class_names
from mnemoscope.core.seeding import generator
from mnemoscope.report.guesses import output_symbols, token_symbols
from mnemoscope.report.task_report import find_report

N_BEFORE = 32
"""Most tokens of an example, the last ones before its answer."""


@dataclass(frozen=True, kw_only=True)
class TaskWords:
    """Sentences about a task, and an example; without one its sequence and answer are empty."""

    about: str
    sequence: str
    answer: str


def task_words(task: Task) -> TaskWords:
    """The words of the task's report entry, else the first paragraph of its docstring, and an unseen sequence.

    A task of vectors has an example where its report entry names the symbols.
    """
    entry = find_report(task)
    batch = task.sample(1, split="test", generator=generator(0, "example"))
    if entry.example_words is not None:
        sequence, answer = entry.example_words(task, batch)
    elif batch.has_vectors or not batch.scored.any():
        sequence = answer = ""
    else:
        sequence, answer = _example(task, batch)
    return TaskWords(about=entry.about or _docstring(task), sequence=sequence, answer=answer)


def _docstring(task: Task) -> str:
    """The first paragraph of the docstring of the class; empty where a dataclass made it of its fields."""
    text = vars(type(task)).get("__doc__") or ""
    first = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return "" if first.startswith(f"{type(task).__name__}(") else first


def _example(task: Task, batch: Batch) -> tuple[str, str]:
    """The tokens up to the last position of the first skill that occurs, or that is scored, and the target there.

    A sequence that has a class is shown whole.
    """
    symbols = token_symbols(task)
    places = next((mask for mask in task.skills(batch).values() if mask[0].any()), batch.scored)
    pos = int(places[0].nonzero()[-1])
    end = int(batch.known_lengths[0]) if class_names(task) else pos + 1
    tokens = [symbols[token] for token in batch.inputs[0, :end].tolist()]
    shown = ["…"] * (len(tokens) > N_BEFORE) + tokens[-N_BEFORE:]
    return " ".join(shown), output_symbols(task)[int(batch.targets[0, pos])]
