"""Any text in place of the one that a task is made of.

Such a task has a method `with_text(text)`, which returns the fields that differ, or raises an `InputError`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS


@runtime_checkable
class OfText(Protocol):
    """A task that is made of a text."""

    def with_text(self, text: str) -> dict[str, Any]:
        """Fields that make this the task of another text."""
        ...


def with_corpus(presets: Sequence[str], file: Path) -> dict[str, Any]:
    """The changes that give presets another text.

    Raises:
        InputError: The file cannot be read, is no text, or is refused by a task; or there is no such preset, or its
            task is not made of a text.
    """
    text, changes = _read(file), {}
    for name in presets:
        task = PRESETS.get(name).task
        if not isinstance(task, OfText):
            able = ", ".join(each for each in PRESETS.names() if isinstance(PRESETS.get(each).task, OfText))
            raise InputError(f"--corpus is for presets whose task is made of a text: {able}; got {name}")
        try:
            changes |= {f"task.{field}": value for field, value in task.with_text(text).items()}
        except InputError as error:
            raise InputError(f"--corpus {file}: {error}") from None
    return changes


def _read(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--corpus {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--corpus {file} is no text in UTF-8; convert it first") from None
    if "\0" in text:
        raise InputError(f"--corpus {file} is no text: it holds a NUL character")
    return text
