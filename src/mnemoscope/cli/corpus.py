"""Any text as the source of the bigrams of a task."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS
from mnemoscope.systems.in_context_bigrams.bigrams import Counts, count_bigrams

FIELD = "counts"
"""The field of a task that a table of bigrams goes to."""


def read_corpus(file: Path) -> Counts:
    """The bigram counts of a text file.

    Raises:
        InputError: It cannot be read, is no text, or has too few symbols or too many.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--corpus {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--corpus {file} is no text in UTF-8; convert it first") from None
    if "\0" in text:
        raise InputError(f"--corpus {file} is no text: it holds a NUL character")
    try:
        return count_bigrams(text)
    except InputError as error:
        raise InputError(f"--corpus {file}: {error}") from None


def with_corpus(presets: Sequence[str], counts: Counts) -> dict[str, Counts]:
    """The change that gives presets another table of bigrams.

    Raises:
        InputError: There is no such preset, or its task has no such table.
    """
    for preset in presets:
        if not _takes_counts(preset):
            able = ", ".join(name for name in PRESETS.names() if _takes_counts(name))
            raise InputError(f"--corpus is for presets whose task is made of bigrams: {able}; got {preset}")
    return {f"task.{FIELD}": counts}


def _takes_counts(preset: str) -> bool:
    return FIELD in {field.name for field in fields(PRESETS.get(preset).task)}
