"""Answers that were found are kept in files, so that the same command goes on where it stopped.

A file per set of questions holds what was answered so far. It counts as long as nothing has changed that decides about
an answer: the text and the way of sampling are part of an answer's key. Everything else (the model, versions, the code
of this package) is part of a stamp; with another stamp the whole file is dropped.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnemoscope.models import write_atomically
from mnemoscope.systems.retrieval_prompts.questions import Question
from mnemoscope.systems.retrieval_prompts.scoring import Answered, Sampling

_DECIDE = ("questions", "reading", "scoring")
"""Modules of this package that decide about answers."""


def source_digest() -> str:
    """The digest of the code that decides about answers."""
    digest = hashlib.sha256()
    for name in _DECIDE:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The answers of one model in a directory, in one file per set of questions.

    The stamp changes with whatever decides about answers, beside the question and the sampling.
    """

    directory: Path
    stamp: str
    _found: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    def find(self, name: str, questions: Sequence[Question], sampling: Sampling | None) -> list[Answered]:
        """The answers to those of some questions that were answered before."""
        records = self._records(name)
        keys = {question: _key(question, sampling) for question in questions}
        return [_answered(question, records[key]) for question, key in keys.items() if key in records]

    def add(self, name: str, answered: Sequence[Answered], sampling: Sampling | None) -> None:
        """Keep some more answers."""
        records = self._records(name)
        for each in answered:
            record = {"log_probs": list(each.log_probs), "sampled": each.sampled, "tries": each.tries}
            records[_key(each.question, sampling)] = record
        content = {"stamp": self.stamp, "answers": records}
        write_atomically(self._file(name), json.dumps(content, indent=0).encode())

    def _file(self, name: str) -> Path:
        return self.directory / f"{name.replace(' ', '-')}.json"

    def _records(self, name: str) -> dict[str, Any]:
        if name not in self._found:
            file = self._file(name)
            content: Mapping[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
            self._found[name] = content["answers"] if content.get("stamp") == self.stamp else {}
        return self._found[name]


def _key(question: Question, sampling: Sampling | None) -> str:
    text = repr((question.text, question.acceptable, question.seed, question.number, sampling))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _answered(question: Question, record: Mapping[str, Any]) -> Answered:
    return Answered(
        question=question,
        log_probs=tuple(record["log_probs"]),
        sampled=record["sampled"],
        tries=record["tries"],
    )
